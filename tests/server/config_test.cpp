// The configuration against the rules at the top of config.h: what wins, where a value comes from,
// and what is refused with file and line, variable or flag.
#include "server/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "server/settings.h"

namespace mneme::server {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = ::testing::TempDir() + "mneme_config_" + std::to_string(getpid()) + ".textproto";
  }
  void TearDown() override { std::remove(file_.c_str()); }

  void Write(const std::string& text) {
    std::ofstream(file_) << text;
    sources_.file = file_;
  }

  std::string Complaint() {
    const auto loaded = LoadConfiguration(sources_);
    return loaded ? "" : loaded.error().message();
  }

  ConfigValue Value(const std::string& path) {
    const auto loaded = LoadConfiguration(sources_);
    EXPECT_TRUE(loaded) << loaded.error().message();
    if (loaded) {
      for (const ConfigValue& value : loaded->values) {
        if (value.path == path) return value;
      }
    }
    return {};
  }

  std::string file_;
  ConfigSources sources_;
};

TEST_F(ConfigTest, FillsInTheDefaultsOfTheTable) {
  const auto loaded = LoadConfiguration({});
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->config.listen().port(), 7411u);
  EXPECT_EQ(loaded->config.listen().address(), "127.0.0.1");
  EXPECT_EQ(loaded->config.scheduler().step_ms(), 50u);
  EXPECT_EQ(loaded->config.memory().host_bytes_max(), uint64_t{2} << 30);
  EXPECT_EQ(loaded->config.limits().output_pause_bytes(), 256u * 1024);
  EXPECT_EQ(Value("scheduler.step_ms").origin, "default");
}

TEST_F(ConfigTest, LetsFlagsWinOverTheEnvironmentAndThatOverTheFile) {
  Write(
      "scheduler {\n  step_ms: 20\n  batch_max: 2\n  running_max: 5\n  idle_tokens_max: 600\n}\n");
  sources_.environment = {"HOME=/root", "MNEME_SCHEDULER_STEP_MS=30",
                          "MNEME_SCHEDULER_BATCH_MAX=3"};
  sources_.flags = {{"scheduler.step_ms", "40"}};
  EXPECT_EQ(Value("scheduler.step_ms").value, "40");
  EXPECT_EQ(Value("scheduler.step_ms").origin, "flag --scheduler.step_ms");
  EXPECT_EQ(Value("scheduler.batch_max").value, "3");
  EXPECT_EQ(Value("scheduler.batch_max").origin, "environment MNEME_SCHEDULER_BATCH_MAX");
  EXPECT_EQ(Value("scheduler.running_max").value, "5");
  EXPECT_EQ(Value("scheduler.idle_tokens_max").value, "600");
  EXPECT_EQ(Value("scheduler.running_max").origin, "file " + file_ + ":4");
  EXPECT_EQ(Value("memory.readers").origin, "default");
}

TEST_F(ConfigTest, ListsEveryFieldOnceWithADistinctVariable) {
  EXPECT_GE(Settings().size(), 25u);
  std::set<std::string> names;
  for (const Setting& setting : Settings()) names.insert(EnvironmentName(setting.path));
  EXPECT_EQ(names.size(), Settings().size());
  EXPECT_EQ(EnvironmentName("scheduler.step_ms"), "MNEME_SCHEDULER_STEP_MS");
  const auto loaded = LoadConfiguration({});
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->values.size(), Settings().size());
}

TEST_F(ConfigTest, RefusesAnUnknownKeyWithFileAndLine) {
  Write("model_dir: \"m\"\nscheduler {\n  stepms: 20\n}\n");
  EXPECT_EQ(Complaint(), file_ +
                             ":3:9: Message type \"mneme.v1.SchedulerConfig\" has no field "
                             "named \"stepms\".");
}

TEST_F(ConfigTest, RefusesAValueThatDoesNotFitWithFileAndLine) {
  Write("listen { port: \"many\" }\n");
  EXPECT_EQ(Complaint().substr(0, file_.size() + 4), file_ + ":1:1");
}

TEST_F(ConfigTest, RefusesAnUnknownVariableAndNamesTheNearest) {
  sources_.environment = {"MNEME_SCHEDULER_STEPMS=3"};
  EXPECT_EQ(Complaint(),
            "environment MNEME_SCHEDULER_STEPMS: there is no such setting; did you mean "
            "MNEME_SCHEDULER_STEP_MS?");
}

TEST_F(ConfigTest, NamesTheVariableWhoseSectionOrEndIsMissing) {
  const std::vector<std::pair<std::string, std::string>> meant = {
      {"MNEME_PORT", "MNEME_LISTEN_PORT"},
      {"MNEME_MODEL", "MNEME_MODEL_DIR"},
      {"MNEME_STORE", "MNEME_STORE_DIR"},
      {"MNEME_THREADS", "MNEME_CPU_THREADS"},
      {"MNEME_HOST_BYTES_MAX", "MNEME_MEMORY_HOST_BYTES_MAX"},
      {"MNEME_READR", "MNEME_READER"},
      {"MNEME_", "MNEME_READER"}};
  for (const auto& [typed, name] : meant) {
    sources_.environment = {typed + "=7"};
    EXPECT_EQ(Complaint(),
              "environment " + typed + ": there is no such setting; did you mean " + name + "?");
  }
}

TEST_F(ConfigTest, LeavesTheClientsVariableAlone) {
  sources_.environment = {"MNEME_SERVER=127.0.0.1:7000"};
  EXPECT_EQ(Complaint(), "");
}

TEST_F(ConfigTest, RefusesNumbersThatAreNone) {
  for (const char* value : {"", "-1", "3x", "1e3", "99999999999", "3KiB"}) {
    sources_.environment = {std::string("MNEME_SCHEDULER_STEP_MS=") + value};
    EXPECT_NE(Complaint(), "") << value;
  }
}

TEST_F(ConfigTest, TakesBytesWithAUnit) {
  sources_.flags = {{"memory.host_bytes_max", "64MiB"}};
  EXPECT_EQ(Value("memory.host_bytes_max").value, "67108864");
  sources_.flags = {{"memory.host_bytes_max", "64MB"}};
  EXPECT_EQ(
      Complaint(),
      "flag --memory.host_bytes_max: memory.host_bytes_max cannot be \"64MB\"; it is a number "
      "of bytes, such as 64MiB");
}

TEST_F(ConfigTest, SaysTheRangeOfANumberThatCannotBeRead) {
  sources_.flags = {{"listen.port", "http"}};
  EXPECT_EQ(Complaint(),
            "flag --listen.port: listen.port cannot be \"http\"; it is a whole number, 1 to 65535");
  sources_.flags = {{"limits.frame_bytes_max", "1MB"}};
  EXPECT_EQ(Complaint(),
            "flag --limits.frame_bytes_max: limits.frame_bytes_max cannot be \"1MB\"; it is a "
            "number of bytes, such as 64MiB, 1024 to 16777216");
  sources_.flags = {{"scheduler.step_ms", "4294967296"}};
  EXPECT_EQ(Complaint(),
            "flag --scheduler.step_ms: scheduler.step_ms cannot be \"4294967296\"; it is a whole "
            "number, at most 4294967295");
}

TEST_F(ConfigTest, SaysThatBytesInTheFileHaveNoUnit) {
  for (const char* bytes : {"\"64MiB\"", "64MiB", "64 MiB"}) {
    Write(std::string("memory {\n  host_bytes_max: ") + bytes + "\n}\n");
    EXPECT_EQ(Complaint().find(file_ + ":"), 0u) << Complaint();
    EXPECT_NE(Complaint().find("; in the file bytes are a plain number, such as 67108864"),
              std::string::npos)
        << Complaint();
  }
  Write("memory {\n  host_bytes_max: 67108864\n}\n");
  EXPECT_EQ(Value("memory.host_bytes_max").value, "67108864");
}

// The one sample of the operator's guide, as it stands there.
TEST_F(ConfigTest, LoadsTheSampleOfTheOperatorsGuide) {
  std::ifstream guide(std::string(MNEME_SOURCE_DIR) + "/docs/operating.md");
  std::string sample;
  bool inside = false;
  for (std::string line; std::getline(guide, line);) {
    if (inside && line == "```") break;
    if (inside) sample += line + "\n";
    if (line == "```textproto") inside = true;
  }
  ASSERT_FALSE(sample.empty());
  Write(sample);
  ASSERT_EQ(Complaint(), "");
  EXPECT_EQ(Value("memory.host_bytes_max").value, std::to_string(uint64_t{4} << 30));
  EXPECT_EQ(Value("listen.port").value, "7500");
  EXPECT_EQ(Value("model_dir").origin.find("file "), 0u);
}

TEST_F(ConfigTest, RefusesValuesOutOfRangeAndSaysWhereTheyComeFrom) {
  sources_.flags = {{"listen.port", "70000"}};
  EXPECT_EQ(Complaint(), "flag --listen.port: listen.port is 70000; it lies in 1 to 65535");
  sources_.flags = {};
  Write("reader: \"mlp\"\n");
  EXPECT_EQ(Complaint(), "file " + file_ +
                             ":1: reader is \"mlp\"; it is one of hla, mhla, native, or empty for "
                             "the model's own");
}

TEST_F(ConfigTest, SaysWhenTheFileIsNotThere) {
  sources_.file = "/nowhere/serve.textproto";
  const auto loaded = LoadConfiguration(sources_);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(loaded.error().message().find(
                "config file /nowhere/serve.textproto: cannot be opened: No such file"),
            0u)
      << loaded.error().message();
}

TEST_F(ConfigTest, RefusesAFlagForAMessageOrNothing) {
  for (const char* path : {"scheduler", "scheduler.", "listen.port.x", "nothing"}) {
    sources_.flags = {{path, "1"}};
    EXPECT_NE(Complaint(), "") << path;
  }
}

TEST_F(ConfigTest, HandsItsLimitsToTheServer) {
  sources_.flags = {{"limits.requests_per_connection_max", "3"},
                    {"limits.output_stall_ms", "99"},
                    {"limits.drain_ms", "5"},
                    {"limits.frame_bytes_max", "8KiB"},
                    {"listen.port", "1234"}};
  const auto loaded = LoadConfiguration(sources_);
  ASSERT_TRUE(loaded) << loaded.error().message();
  const ServerOptions options = ServerOptionsFrom(loaded->config);
  EXPECT_EQ(options.connection.requests_max, 3u);
  EXPECT_EQ(options.connection.output.stall_ms, 99);
  EXPECT_EQ(options.connection.frame.frame_bytes_max, 8192u);
  EXPECT_EQ(options.drain_ms, 5);
  EXPECT_EQ(options.port, 1234);
}

}  // namespace
}  // namespace mneme::server

// The real `mneme serve`, with the service that echoes: how it starts, what it refuses, and how it
// stops when a signal says so.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "server/settings.h"
#include "tests/support/process.h"
#include "tests/support/raw_client.h"

namespace mneme {
namespace {

using support::FreePort;
using support::Process;
using support::ProcessOptions;
using support::RawClient;
using support::ServedProcess;

ProcessOptions Serve(std::vector<std::string> arguments,
                     std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), {MNEME_ON_FAKE, "serve"});
  return {.arguments = std::move(arguments), .environment = std::move(environment)};
}

TEST(ServeProcessTest, ServesUntilASignalAndExitsWithZero) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ServedProcess served;
    RawClient client(served.port());
    ASSERT_TRUE(client.Send(support::OpenOf(1, "a")));
    ASSERT_TRUE(client.Receive());
    const int64_t start_us = RealClock().MonotonicUs();
    served.process().Signal(signal);
    EXPECT_EQ(served.process().Wait(), 0) << served.process().Errors();
    EXPECT_LT(RealClock().MonotonicUs() - start_us, 2'000'000);
    EXPECT_TRUE(client.AtEnd());
    EXPECT_FALSE(RawClient(served.port()).connected());
  }
}

TEST(ServeProcessTest, FinishesTheAnswerThatASignalMeets) {
  ServedProcess served({"FAKE_TOKEN_US=5000"});
  RawClient client(served.port());
  ASSERT_TRUE(client.Send(support::OpenOf(1, "a")));
  ASSERT_TRUE(client.Receive());
  ASSERT_TRUE(client.Send(support::GenerateOf(2, "a", "count 100")));
  ASSERT_TRUE(client.Receive());
  served.process().Signal(SIGTERM);
  const auto events = client.ReceiveAll(2);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().done().generated_tokens(), 100u);
  EXPECT_EQ(served.process().Wait(), 0);
}

TEST(ServeProcessTest, StopsAtOnceAtASecondSignal) {
  ServedProcess served({"FAKE_TOKEN_US=5000"});
  RawClient client(served.port());
  ASSERT_TRUE(client.Send(support::OpenOf(1, "a")));
  ASSERT_TRUE(client.Receive());
  v1::Request endless = support::GenerateOf(2, "a", "count 100000");
  endless.mutable_generate()->set_max_tokens(4096);
  ASSERT_TRUE(client.Send(endless));
  ASSERT_TRUE(client.Receive());
  served.process().Signal(SIGTERM);
  EXPECT_EQ(served.process().Wait(300), -1) << "it drains";
  served.process().Signal(SIGTERM);
  EXPECT_EQ(served.process().Wait(3000), 7);
}

TEST(ServeProcessTest, RefusesAPortThatIsTaken) {
  ServedProcess served;
  Process second(Serve({"--model", "m", "--store", "s", "--port", std::to_string(served.port())}));
  EXPECT_EQ(second.Wait(), 6);
  EXPECT_NE(second.Errors().find("is another server running?"), std::string::npos)
      << second.Errors();
}

TEST(ServeProcessTest, RefusesAStoreThatIsInUseWithItsOwnCode) {
  Process process(Serve({"--model", "m", "--store", "in-use"}));
  EXPECT_EQ(process.Wait(), 5);
}

TEST(ServeProcessTest, RefusesAnAddressOthersCouldReach) {
  Process process(Serve({"--model", "m", "--store", "s", "--address", "0.0.0.0"}));
  EXPECT_EQ(process.Wait(), 6);
  EXPECT_NE(process.Errors().find("until keys and TLS exist"), std::string::npos);
}

TEST(ServeProcessTest, WantsAModelAndAStoreAndShowsHow) {
  Process process(Serve({}));
  EXPECT_EQ(process.Wait(), 2);
  EXPECT_NE(process.Errors().find("mneme serve --model"), std::string::npos);
}

TEST(ServeProcessTest, NamesFileAndLineOfAnUnknownKey) {
  const std::string file = ::testing::TempDir() + "mneme_unknown_" + std::to_string(getpid());
  std::ofstream(file) << "model_dir: \"m\"\nstoredir: \"s\"\n";
  Process process(Serve({"--config", file}));
  EXPECT_EQ(process.Wait(), 2);
  EXPECT_NE(process.Errors().find(file + ":2:"), std::string::npos) << process.Errors();
  std::remove(file.c_str());
}

TEST(ServeProcessTest, PrintsTheSettingsInForceAndWhereTheyComeFrom) {
  const std::string file = ::testing::TempDir() + "mneme_check_" + std::to_string(getpid());
  std::ofstream(file) << "model_dir: \"m\"\nscheduler { step_ms: 20 batch_max: 2 }\n";
  Process process(Serve({"--config", file, "--check-config", "--port", "7500"},
                        {"MNEME_SCHEDULER_STEP_MS=30"}));
  EXPECT_EQ(process.Wait(), 0) << process.Errors();
  const std::string output = process.Output();
  const auto says = [&output](const std::string& setting, const std::string& origin) {
    const size_t at = output.find(setting);
    return at != output.npos &&
           output.substr(at, output.find('\n', at) - at).ends_with("# " + origin);
  };
  EXPECT_TRUE(says("model_dir = \"m\"", "file " + file + ":1")) << output;
  EXPECT_TRUE(says("scheduler.step_ms = 30", "environment MNEME_SCHEDULER_STEP_MS")) << output;
  EXPECT_TRUE(says("scheduler.batch_max = 2", "file " + file + ":2")) << output;
  EXPECT_TRUE(says("listen.port = 7500", "flag --listen.port")) << output;
  EXPECT_TRUE(says("memory.readers = 8", "default")) << output;
  std::remove(file.c_str());
}

TEST(ServeProcessTest, PrintsTheSettingsInForceForPrograms) {
  Process process(
      Serve({"--check-config", "--json", "--port", "7500"}, {"MNEME_SCHEDULER_STEP_MS=30"}));
  EXPECT_EQ(process.Wait(), 0) << process.Errors();
  const boost::json::object settings = boost::json::parse(process.Output()).as_object();
  EXPECT_EQ(settings.size(), server::Settings().size());
  const auto in_force = [](boost::json::value value, const char* origin) {
    return boost::json::value{{"value", std::move(value)}, {"origin", origin}};
  };
  EXPECT_EQ(settings.at("listen.port"), in_force(7500, "flag --listen.port"));
  EXPECT_EQ(settings.at("scheduler.step_ms"), in_force(30, "environment MNEME_SCHEDULER_STEP_MS"));
  EXPECT_EQ(settings.at("memory.host_bytes_max"), in_force(2147483648, "default"));
  EXPECT_EQ(settings.at("model_dir"), in_force("", "default"));
  Process alone(Serve({"--json"}));
  EXPECT_EQ(alone.Wait(), 2) << "the server itself prints no JSON";
  Process refused(Serve({"--check-config", "--json", "--port", "0x"}));
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_NE(refused.Output().find("\"code\":\"invalid_argument\""), std::string::npos)
      << refused.Output();
}

TEST(ServeProcessTest, SaysOfEverySettingWhatItDoesAndItsDefault) {
  Process process(Serve({"--help"}));
  EXPECT_EQ(process.Wait(), 0);
  const std::string help = process.Output();
  for (const server::Setting& setting : server::Settings()) {
    EXPECT_NE(help.find("--" + std::string(setting.path)), help.npos) << setting.path;
    const std::string what = fmt::format("{} [{}]", server::WhatItDoes(setting),
                                         setting.standard.empty() ? "none" : setting.standard);
    EXPECT_NE(help.find(what), help.npos) << what;
  }
}

TEST(ServeProcessTest, RefusesCommandsAndFlagsItDoesNotKnow) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{MNEME_ON_FAKE, "sreve"},
        {MNEME_ON_FAKE, "serve", "--prot", "1"},
        {MNEME_ON_FAKE, "chat"},
        {MNEME_ON_FAKE, "session"},
        {MNEME_ON_FAKE}}) {
    Process process({.arguments = arguments});
    EXPECT_EQ(process.Wait(), 2) << arguments.back();
    EXPECT_FALSE(process.Errors().empty());
  }
}

TEST(ServeProcessTest, TeachesWithExamplesWhenAskedForHelp) {
  for (const std::string command :
       {"", "serve", "chat", "session", "session ls", "session show", "session rm", "run", "model",
        "model inspect", "bench", "demo", "eval", "eval retrieval", "eval needles",
        "eval questions", "eval histories"}) {
    std::vector<std::string> arguments = {MNEME_ON_FAKE};
    std::istringstream words(command);
    for (std::string word; words >> word;) arguments.push_back(word);
    arguments.emplace_back("--help");
    Process process({.arguments = arguments});
    EXPECT_EQ(process.Wait(), 0) << command;
    EXPECT_NE(process.Output().find("\n  mneme " + command), std::string::npos) << command << ":\n"
                                                                                << process.Output();
  }
}

}  // namespace
}  // namespace mneme

// The source text itself against the house rules: who includes whom, sizes, words, parked tests, a
// test for every header, and folder READMEs that name every file. Reads the files git tracks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace mneme {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLineColumnsMax = 100;
constexpr size_t kFileLinesMax = 600;
constexpr uint64_t kTrackedBytesMax = 37ull * 1024 * 1024;

// What each folder may include of ours, itself aside.
const std::map<std::string, std::set<std::string>>& MayInclude() {
  static const std::map<std::string, std::set<std::string>> rules = {
      {"base", {}},
      {"proto", {"base"}},
      {"kernels", {"base"}},
      {"memory", {"base", "proto", "kernels"}},
      {"model", {"base", "kernels", "memory"}},
      {"engine", {"base", "proto", "kernels", "memory", "model"}},
      {"eval", {"base", "proto", "kernels", "memory", "model", "engine"}},
      {"server", {"base", "proto", "kernels", "memory", "model", "engine"}},
      {"client", {"base", "proto"}},
      {"cli",
       {"base", "proto", "kernels", "memory", "model", "engine", "eval", "server", "client"}},
  };
  return rules;
}

// Third-party headers that only some folders may name: prefix of the include -> folders.
const std::map<std::string, std::set<std::string>>& Vendors() {
  static const std::map<std::string, std::set<std::string>> rules = {
      {"rocksdb/", {"memory"}},
      {"boost/asio", {"server", "client"}},
      {"boost/beast", {"server"}},
      {"boost/json", {"model", "eval", "server", "cli"}},
      {"CLI/", {"cli"}},
      {"cblas.h", {"kernels"}},
      {"hwy/", {"kernels"}},
      {"boost/crc", {"memory"}},
      {"pcre2.h", {"model"}},
      {"utf8proc.h", {"model", "cli"}},
      {"xxhash.h", {"memory"}},
      {"openssl/", {"memory", "server"}},
      {"spdlog/", {"base"}},
      {"google/protobuf", {"proto", "memory", "engine", "server", "client", "cli"}},
  };
  return rules;
}

fs::path Root() { return MNEME_SOURCE_DIR; }

std::vector<std::string> TrackedFiles() {
  std::vector<std::string> files;
  const std::string command =
      "git -c safe.directory='*' -C '" + Root().string() + "' ls-files -co --exclude-standard";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 4096> line;
  while (pipe && fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::string name(line.data());
    name.erase(name.find_last_not_of('\n') + 1);
    if (fs::is_regular_file(Root() / name)) files.push_back(name);
  }
  return files;
}

bool IsSource(const std::string& name) {
  return name.ends_with(".h") || name.ends_with(".cpp") || name.ends_with(".cu") ||
         name.ends_with(".cuh");
}

std::string FolderOf(const std::string& name) { return name.substr(0, name.find('/')); }

std::string Read(const std::string& name) {
  std::ifstream file(Root() / name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Columns as a reader counts them: bytes that start a character.
size_t Columns(const std::string& line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

class TidyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (system("git --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "needs git";
    files_ = TrackedFiles();
    ASSERT_GT(files_.size(), 20u) << "the source tree was not found at " << Root();
  }

  std::vector<std::string> files_;
};

TEST_F(TidyTest, LinesAndFilesAreShort) {
  for (const std::string& name : files_) {
    if (!IsSource(name)) continue;
    const std::vector<std::string> lines = Lines(Read(name));
    EXPECT_LE(lines.size(), kFileLinesMax) << name;
    for (size_t line = 0; line < lines.size(); ++line)
      EXPECT_LE(Columns(lines[line]), kLineColumnsMax) << name << ":" << line + 1;
  }
}

TEST_F(TidyTest, TheTreeStaysSmall) {
  uint64_t bytes = 0;
  for (const std::string& name : files_) bytes += fs::file_size(Root() / name);
  EXPECT_LE(bytes, kTrackedBytesMax);
}

TEST_F(TidyTest, FoldersIncludeOnlyWhatTheyMay) {
  static const std::regex ours("^\\s*#include \"([a-z]+)/.*");
  static const std::regex theirs("^\\s*#include [<\"]([^>\"]+)[>\"].*");  // Highway asks for quotes
  for (const std::string& name : files_) {
    const auto rule = MayInclude().find(FolderOf(name));
    if (!IsSource(name) || rule == MayInclude().end()) continue;
    for (const std::string& line : Lines(Read(name))) {
      std::smatch match;
      if (std::regex_match(line, match, ours) && match[1] != rule->first && match[1] != "hwy") {
        EXPECT_TRUE(rule->second.contains(match[1])) << name << ": " << line;
      }
      if (!std::regex_match(line, match, theirs)) continue;
      for (const auto& [prefix, folders] : Vendors()) {
        if (match[1].str().starts_with(prefix)) {
          EXPECT_TRUE(folders.contains(rule->first)) << name << ": " << line;
        }
      }
    }
  }
}

TEST_F(TidyTest, NamesAvoidTheBannedWords) {
  static const std::regex banned(
      "\\b(class|struct) (\\[\\[nodiscard\\]\\] )?[A-Za-z0-9]*"
      "(Manager|Helper|Utils?|Common|Misc|Info|Handler|Optimized)\\b.*");
  for (const std::string& name : files_) {
    if (!IsSource(name)) continue;
    for (const std::string& line : Lines(Read(name)))
      EXPECT_FALSE(std::regex_search(line, banned)) << name << ": " << line;
  }
}

TEST_F(TidyTest, NothingIsParked) {
  static const std::regex parked(std::string("\\bFIX") + "ME\\b|\\bDISABLED" + "_|^#if" + " 0");
  for (const std::string& name : files_) {
    if (!IsSource(name)) continue;
    for (const std::string& line : Lines(Read(name)))
      EXPECT_FALSE(std::regex_search(line, parked)) << name << ": " << line;
  }
}

// Headers without a test of their own name: interfaces, constants and plain structs ("" here), and
// what the test named beside them drives.
const std::map<std::string, std::string>& TestedElsewhere() {
  static const std::map<std::string, std::string> headers = {
      {"base/bytes.h", ""},
      {"base/clock.h", ""},
      {"base/ids.h", ""},
      {"cli/command.h", "tests/system/chat_process_test.cpp"},
      {"cli/connect.h", "tests/system/session_process_test.cpp"},
      {"cli/local_model.h", "tests/system/local_process_test.cpp"},
      {"cli/make_service.h", "tests/system/serve_process_test.cpp"},
      {"cli/server_process.h", "tests/system/demo_process_test.cpp"},
      {"cli/terminal_input.h", "tests/system/chat_input_process_test.cpp"},
      {"engine/admission.h", "tests/engine/engine_test.cpp"},
      {"engine/answers.h", "tests/engine/engine_test.cpp"},
      {"engine/chunk_keeper.h", "tests/engine/resume_test.cpp"},
      {"engine/parts.h", ""},
      {"engine/scheduler.h", "tests/engine/schedule_test.cpp"},
      {"engine/service.h", ""},
      {"engine/session.h", "tests/engine/engine_test.cpp"},
      {"engine/session_reader.h", "tests/engine/engine_test.cpp"},
      {"engine/session_table.h", "tests/engine/engine_test.cpp"},
      {"engine/turn_input.h", "tests/engine/engine_test.cpp"},
      {"engine/turn_log.h", "tests/engine/engine_test.cpp"},
      {"engine/turn_text.h", "tests/engine/engine_test.cpp"},
      {"engine/turn_writer.h", "tests/engine/engine_test.cpp"},
      {"engine/writing.h", ""},
      {"kernels/kernel_table.h", "tests/kernels/kernel_table_test.cpp"},
      {"kernels/shape.h", ""},
      {"kernels/step_table.h", ""},
      {"kernels/stream.h", ""},
      {"kernels/tensor.h", ""},
      {"memory/file_descriptor.h", "tests/memory/slot_file_test.cpp"},
      {"memory/log_keys.h", "tests/memory/turn_store_test.cpp"},
      {"memory/memory_layout.h", ""},
      {"memory/open_rocksdb.h", "tests/memory/turn_store_test.cpp"},
      {"memory/page_source.h", ""},
      {"memory/reconcile.h", "tests/memory/store_kill_test.cpp"},
      {"memory/resume.h", "tests/engine/resume_test.cpp"},
      {"memory/turn_commit_rocksdb.h", "tests/memory/turn_store_test.cpp"},
      {"memory/turn_store_rocksdb.h", "tests/memory/turn_store_test.cpp"},
      {"model/loaded_model.h", "tests/model/golden_test.cpp"},
      {"model/local_session.h", "tests/model/golden_test.cpp"},
      {"model/model_folder.h", "tests/model/golden_test.cpp"},
      {"model/workspace.h", "tests/model/golden_test.cpp"},
      {"server/listener.h", "tests/server/server_test.cpp"},
      {"server/protobuf_connection.h", "tests/server/server_test.cpp"},
  };
  return headers;
}

TEST_F(TidyTest, EveryHeaderHasATest) {
  const std::set<std::string> names(files_.begin(), files_.end());
  for (const std::string& name : files_) {
    if (!name.ends_with(".h") || !MayInclude().contains(FolderOf(name))) continue;
    if (name.find('/') != name.rfind('/')) continue;  // of a backend; its op's header has the test
    const auto elsewhere = TestedElsewhere().find(name);
    const std::string test = elsewhere == TestedElsewhere().end()
                                 ? "tests/" + name.substr(0, name.size() - 2) + "_test.cpp"
                                 : elsewhere->second;
    EXPECT_TRUE(test.empty() || names.contains(test)) << name << " has no test " << test;
  }
}

// docs/errors.md has a row for every code and reason of base/error.cpp and every exit code of the
// command line, and each names tests that exist.
TEST_F(TidyTest, EveryErrorNamesTestsThatExist) {
  static const std::regex test("TEST(?:_F|_P)?\\(\\s*(\\w+),\\s*(\\w+)\\)");
  static const std::regex named("`(\\w+Test)\\.(\\w+|\\*)`");
  const auto each = [](const std::string& text, const std::regex& what, const auto& visit) {
    for (std::sregex_iterator at(text.begin(), text.end(), what), end; at != end; ++at) visit(*at);
  };
  std::set<std::string> tests;
  for (const std::string& name : files_) {
    if (!name.starts_with("tests/") || !name.ends_with("_test.cpp")) continue;
    each(Read(name), test, [&tests](const std::smatch& found) {
      tests.insert(found[1].str() + "." + found[2].str());
      tests.insert(found[1].str() + ".*");
    });
  }
  std::set<std::string> rows;
  for (const std::string& line : Lines(Read("docs/errors.md"))) {
    bool tested = false;
    each(line, named, [&](const std::smatch& found) {
      const std::string full = found[1].str() + "." + found[2].str();
      EXPECT_TRUE(tests.contains(full)) << "docs/errors.md: no test " << full;
      tested = true;
    });
    if (line.starts_with("| ") && tested) rows.insert(line.substr(2, line.find(" |") - 2));
  }
  static const std::regex code("return \"(\\w+)\";");
  each(Read("base/error.cpp"), code, [&rows](const std::smatch& found) {
    const std::string row = "`" + found[1].str() + "`";
    EXPECT_TRUE(found[1] == "none" || rows.contains(row)) << row;
  });
  static const std::regex exit_code("kExit\\w+ = (\\d+);");
  each(Read("cli/command.h"), exit_code,
       [&rows](const std::smatch& found) { EXPECT_TRUE(rows.contains(found[1])) << found[1]; });
}

TEST_F(TidyTest, FolderReadmesNameEveryFile) {
  std::map<std::string, std::string> readmes;
  for (const std::string& name : files_) {
    const std::string folder = FolderOf(name);
    if (!IsSource(name) || !MayInclude().contains(folder)) continue;
    if (!readmes.contains(folder)) readmes[folder] = Read(folder + "/README.md");
    const std::string file = name.substr(name.rfind('/') + 1);
    const std::string stem = file.substr(0, file.rfind('.'));
    EXPECT_NE(readmes[folder].find(stem), std::string::npos)
        << folder << "/README.md does not name " << name;
  }
}

}  // namespace
}  // namespace mneme

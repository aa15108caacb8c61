// The main job on the real binary, shorter than `make demo`: a server is told facts, killed,
// started again and asked.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace mneme {
namespace {

TEST(DemoProcessTest, AnswersFromMemoryAfterAKill) {
  const support::TempFolder folder;
  support::Process demo(
      {.arguments = {MNEME, "demo", "--model", std::string(MNEME_SOURCE_DIR) + "/checkpoints/demo",
                     "--corpus", std::string(MNEME_SOURCE_DIR) + "/eval/corpus", "--store",
                     folder / "store", "--tokens", "12000", "--facts", "6"}});
  EXPECT_EQ(demo.Wait(400'000), 0) << demo.Output() << demo.Errors();
  EXPECT_NE(demo.Output().find("kill -9"), std::string::npos);
  EXPECT_NE(demo.Output().find("everything held"), std::string::npos) << demo.Output();
}

TEST(DemoProcessTest, TellsEveryFigureToPrograms) {
  const support::TempFolder folder;
  support::Process demo(
      {.arguments = {MNEME, "demo", "--model", std::string(MNEME_SOURCE_DIR) + "/checkpoints/demo",
                     "--corpus", std::string(MNEME_SOURCE_DIR) + "/eval/corpus", "--store",
                     folder / "store", "--tokens", "4096", "--facts", "2", "--json"}});
  const int exit_code = demo.Wait(400'000);
  const boost::json::object report = boost::json::parse(demo.Output()).as_object();
  EXPECT_EQ(exit_code == 0, report.at("passed").as_bool()) << demo.Output() << demo.Errors();
  EXPECT_EQ(report.at("facts").as_int64(), 2);
  EXPECT_GE(report.at("history_tokens").as_int64(), 4000);
  EXPECT_EQ(report.at("server_ready_seconds").as_array().size(), 2u);
  EXPECT_EQ(report.at("answers").as_array().size(), 2u);
  EXPECT_EQ(report.at("answers").at(0).at("right").as_bool(),
            report.at("answers").at(0).at("answer") == report.at("answers").at(0).at("expected"));
  EXPECT_EQ(report.at("told").as_array().back().at("bytes").at("host_bytes_max"),
            report.at("host_bytes_max"));
  EXPECT_EQ(report.at("resumed").at("tokens").as_int64(),
            report.at("resumed").at("restored_tokens").as_int64() +
                report.at("resumed").at("tokens_to_compute").as_int64());
  for (const char* figure :
       {"page_bytes", "read_seconds", "page_store_reads", "page_store_read_bytes",
        "tokens_computed", "tokens_replayed_or_new", "first_word_seconds"})
    EXPECT_TRUE(report.at(figure).is_number()) << figure;
  // Of each answer, of what was read back, of what was computed, of the first word, of the stop.
  EXPECT_GE(report.at("checks").as_array().size(), 6u);
}

}  // namespace
}  // namespace mneme

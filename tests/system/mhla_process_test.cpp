// The real binary on a tiny MHLA language model: ids in, ids out, what it holds, and what it is
// refused for.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace mneme {
namespace {

using support::Process;

const std::string kModel = std::string(MNEME_SOURCE_DIR) + "/tests/golden/models/mhla_lm";

// Ids 3, 4, ... of the vocabulary of 96, `count` of them.
std::string Ids(int count) {
  std::string ids;
  for (int i = 0; i < count; ++i) ids += std::to_string(3 + i * 7 % 90) + (i % 2 == 0 ? " " : ", ");
  return ids;
}

TEST(MhlaProcessTest, RunReadsAndWritesIdsAndSaysSo) {
  Process text({.arguments = {MNEME, "run", "--model", kModel, "--ids", "--prompt", "5, 17 40",
                              "--max-tokens", "4"}});
  EXPECT_EQ(text.Wait(60'000), 0) << text.Errors();
  EXPECT_NE(text.Errors().find("ids in, ids out"), std::string::npos) << text.Errors();
  EXPECT_NE(text.Errors().find("read 3 tokens"), std::string::npos) << text.Errors();
  EXPECT_NE(text.Errors().find("mhla reader"), std::string::npos) << text.Errors();
  Process json({.arguments = {MNEME, "run", "--model", kModel, "--ids", "--prompt", "5, 17 40",
                              "--max-tokens", "4", "--json"}});
  EXPECT_EQ(json.Wait(60'000), 0) << json.Errors();
  std::string ids = text.Output();
  ids.pop_back();
  for (size_t at = 0; (at = ids.find(' ', at)) != std::string::npos;) ids[at] = ',';
  EXPECT_NE(json.Output().find("\"ids\":[" + ids + "]"), std::string::npos)
      << json.Output() << " and " << ids;
  EXPECT_NE(json.Output().find("\"stop_reason\":\"max_tokens\""), std::string::npos);
}

TEST(MhlaProcessTest, BeyondTheMatrixItGoesOnOrRefusesAsItIsTold) {
  const std::vector<std::string> run = {MNEME,           "run", "--model",      kModel, "--ids",
                                        "--prompt-file", "-",   "--max-tokens", "3",    "--json"};
  Process goes_on({.arguments = run, .input = Ids(2100)});
  EXPECT_EQ(goes_on.Wait(60'000), 0) << goes_on.Errors();
  EXPECT_NE(goes_on.Output().find("\"prompt_tokens\":2100"), std::string::npos);
  std::vector<std::string> refusing = run;
  refusing.insert(refusing.end(), {"--mixing-beyond", "refuse"});
  Process refuses({.arguments = refusing, .input = Ids(2100)});
  EXPECT_NE(refuses.Wait(60'000), 0);
  const std::string said = refuses.Errors() + refuses.Output();
  EXPECT_NE(said.find("token 2048: the mixing matrix knows 32 blocks"), std::string::npos) << said;
  // Where the answer reaches the end, it ends there and says why.
  Process stops({.arguments = refusing, .input = Ids(2047)});
  EXPECT_EQ(stops.Wait(60'000), 0) << stops.Errors();
  EXPECT_NE(stops.Output().find("\"stop_reason\":\"context_limit\""), std::string::npos)
      << stops.Output();
  EXPECT_NE(stops.Output().find("\"generated_tokens\":2"), std::string::npos) << stops.Output();
}

TEST(MhlaProcessTest, InspectShowsSizesAndTheMatrix) {
  Process text({.arguments = {MNEME, "model", "inspect", kModel}});
  EXPECT_EQ(text.Wait(), 0) << text.Errors();
  EXPECT_NE(text.Output().find("2 layers: 2 heads of 8 x 16, width 32, MLP 40, vocabulary 96"),
            std::string::npos)
      << text.Output();
  EXPECT_NE(text.Output().find("the mixing matrix knows 32 blocks, 2,048 tokens"),
            std::string::npos);
  EXPECT_NE(text.Output().find("no tokenizer.json"), std::string::npos);
  Process json({.arguments = {MNEME, "model", "inspect", kModel, "--json"}});
  EXPECT_EQ(json.Wait(), 0) << json.Errors();
  EXPECT_NE(json.Output().find("\"layout\":\"mhla\""), std::string::npos) << json.Output();
  EXPECT_NE(json.Output().find("\"session_bytes_max\":67584"), std::string::npos) << json.Output();
}

TEST(MhlaProcessTest, WhatItCannotDoIsRefusedByName) {
  const auto said = [](std::vector<std::string> arguments) {
    Process process({.arguments = std::move(arguments)});
    EXPECT_NE(process.Wait(60'000), 0);
    return process.Errors();
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::vector<std::string> run = {MNEME, "run", "--model", kModel};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = run;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect(said(with({"--prompt", "Hello."})), "no tokenizer.json");
  expect(said(with({"--ids", "--prompt", "5 x7"})), "prompt: number 1: expected a token id");
  expect(said(with({"--ids", "--prompt", "5 -7"})), "prompt: number 1: expected a token id");
  expect(said(with({"--ids", "--prompt", " , "})), "the prompt is empty");
  expect(said(with({"--ids", "--prompt", "5 96"})), "vocabulary of 96, found 96");
  expect(said(with({"--ids", "--prompt", "5", "--reader", "hla"})), "whose only reader is mhla");
  const support::TempFolder temp;
  expect(said({MNEME, "serve", "--model", kModel, "--store", temp / "store", "--port",
               std::to_string(support::FreePort())}),
         "an MHLA language model, which only mneme run and mneme model inspect read");
  std::filesystem::copy(kModel + "/config.json", temp / "config.json");
  std::filesystem::copy(kModel + "/model.safetensors", temp / "model.safetensors");
  std::filesystem::resize_file(temp / "model.safetensors", 50'000);
  expect(said({MNEME, "run", "--model", temp / "", "--ids", "--prompt", "5"}), "model.safetensors");
}

}  // namespace
}  // namespace mneme

// The real binary on a tiny MHLA language model: ids in, ids out, what it holds, and what it is
// refused for.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/model/checkpoint_files.h"
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

// A folder with a tokenizer in Llama 2's form: D 8, H 2, K 2, V 4, one layer, 1,500 ids.
void WriteFolderWithTokenizer(const std::string& folder) {
  support::TestTensors tensors;
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    tensors["model." + name] = support::Counting("BF16", std::move(shape));
  };
  add("embeddings.weight", {1500, 8});
  add("norm.weight", {8});
  for (const char* norm : {"attn_norm", "mlp_norm"})
    add(std::string("layers.0.") + norm + ".weight", {8});
  for (const char* keys : {"q", "k"})
    add(std::string("layers.0.attn.") + keys + "_proj.weight", {4, 8});
  for (const char* values : {"v", "g", "o"})
    add(std::string("layers.0.attn.") + values + "_proj.weight", {8, 8});
  add("layers.0.attn.g_norm_swish_gate.weight", {4});
  add("layers.0.attn.mixing_matrix", {32, 32, 1, 1, 1, 1});
  for (const char* wide : {"gate", "up"})
    add(std::string("layers.0.mlp.") + wide + "_proj.weight", {12, 8});
  add("layers.0.mlp.down_proj.weight", {8, 12});
  std::ofstream(folder + "/config.json")
      << R"({"model_type":"gla","hidden_size":8,"num_hidden_layers":1,"num_heads":2,)"
      << R"("vocab_size":1500,"intermediate_size":12,"feature_map":"relu",)"
      << R"("tie_word_embeddings":true,"bos_token_id":1,"eos_token_id":2})";
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << support::FileOf(tensors);
  std::filesystem::copy(
      std::string(MNEME_SOURCE_DIR) + "/tests/golden/llama_tokenizer/metaspace.json",
      folder + "/tokenizer.json");
}

TEST(MhlaProcessTest, WithATokenizerItContinuesTheTextAfterItsFirstToken) {
  const support::TempFolder temp;
  WriteFolderWithTokenizer(temp.path());
  std::vector<std::string> one = {MNEME, "run",          "--model", temp.path(), "--prompt",
                                  "a",   "--max-tokens", "3",       "--json"};
  Process text({.arguments = one});
  EXPECT_EQ(text.Wait(60'000), 0) << text.Errors();
  EXPECT_NE(text.Output().find("\"text\":\""), std::string::npos) << text.Output();
  // The first token, and at least one of the text.
  EXPECT_EQ(text.Output().find("\"prompt_tokens\":1,"), std::string::npos) << text.Output();
  one.pop_back();
  Process shown({.arguments = one});
  EXPECT_EQ(shown.Wait(60'000), 0) << shown.Errors();
  EXPECT_NE(shown.Errors().find("it continues the text"), std::string::npos) << shown.Errors();
  Process inspect({.arguments = {MNEME, "model", "inspect", temp.path(), "--json"}});
  EXPECT_EQ(inspect.Wait(), 0) << inspect.Errors();
  EXPECT_NE(inspect.Output().find("\"tokenizer\":true"), std::string::npos) << inspect.Output();
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

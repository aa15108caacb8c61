// A tiny MHLA checkpoint written tensor by tensor, opened as it is, then bent in one place at a
// time: a wrong or partial file is refused by name.
#include "model/mhla_folder.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::Counting;
using support::FileOf;
using support::ScratchFolder;
using support::TestTensors;

// D 8, F 12, vocab 20, H 2, K 2, V 4, two layers; sizes that all differ where they may.
std::string Config(std::string_view more = "") {
  return fmt::format(R"({{"model_type":"gla","hidden_size":8,"num_hidden_layers":2,"num_heads":2,)"
                     R"("vocab_size":20,"intermediate_size":12,"feature_map":"relu"{}}})",
                     more);
}

TestTensors Tensors(const std::string& dtype = "BF16") {
  TestTensors tensors;
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    tensors[name] = Counting(dtype, std::move(shape));
  };
  add("model.embeddings.weight", {20, 8});
  add("model.norm.weight", {8});
  add("lm_head.weight", {20, 8});
  for (const std::string layer : {"0", "1"}) {
    const std::string at = "model.layers." + layer + ".";
    add(at + "attn_norm.weight", {8});
    add(at + "mlp_norm.weight", {8});
    add(at + "attn.q_proj.weight", {4, 8});
    add(at + "attn.k_proj.weight", {4, 8});
    add(at + "attn.v_proj.weight", {8, 8});
    add(at + "attn.g_proj.weight", {8, 8});
    add(at + "attn.o_proj.weight", {8, 8});
    add(at + "attn.g_norm_swish_gate.weight", {4});
    add(at + "attn.mixing_matrix", {32, 32, 1, 1, 1, 1});
    add(at + "mlp.gate_proj.weight", {12, 8});
    add(at + "mlp.up_proj.weight", {12, 8});
    add(at + "mlp.down_proj.weight", {8, 12});
  }
  return tensors;
}

Result<MhlaFolder> OpenTensors(const TestTensors& tensors, const std::string& config = Config()) {
  const ScratchFolder folder;
  folder.Write("config.json", config);
  folder.Write("model.safetensors", FileOf(tensors));
  return MhlaFolder::Open(folder.path());
}

// What the folder's name stands before.
std::string Refusal(const TestTensors& tensors, const std::string& config = Config()) {
  const auto folder = OpenTensors(tensors, config);
  if (folder) return "accepted";
  const std::string message = folder.error().message();
  const size_t colon = message.find(": ");
  return message.starts_with("model folder /") ? message.substr(colon + 2) : message;
}

TEST(MhlaFolderTest, OpensEachStoredType) {
  for (const std::string dtype : {"F32", "BF16", "F16"}) {
    const auto folder = OpenTensors(Tensors(dtype));
    ASSERT_TRUE(folder) << folder.error().message();
    ASSERT_EQ(folder->weights().layers.size(), 2u);
    const MhlaLayerWeights& layer = folder->weights().layers[1];
    EXPECT_EQ(layer.mixing.rows, 32);
    EXPECT_EQ(layer.mixing.cols, 32);
    EXPECT_EQ(NameOf(layer.project_g.dtype), dtype);
    EXPECT_NE(folder->weights().head.bytes, folder->weights().embedding.bytes);
    EXPECT_EQ(folder->weights().skipped_tensors, 0u);
    EXPECT_FALSE(folder->has_tokenizer());
    EXPECT_FALSE(folder->OpenTokenizer());
    // 2 layers, 2 heads of 2 x 4 numbers; 32 blocks to read but the open one, it, and the prefix.
    EXPECT_EQ(folder->Needs().block_bytes, 2u * 2 * 2 * 4 * 4);
    EXPECT_EQ(folder->Needs().session_bytes_max, 33 * folder->Needs().block_bytes);
  }
}

TEST(MhlaFolderTest, TiesTheHeadAndSkipsAStoredOne) {
  const std::string tied = Config(R"(,"tie_word_embeddings":true)");
  TestTensors tensors = Tensors();
  tensors["model.layers.0.attn.rotary.inv_freq"] = Counting("F32", {1});
  const auto folder = OpenTensors(tensors, tied);
  ASSERT_TRUE(folder) << folder.error().message();
  EXPECT_EQ(folder->weights().head.bytes, folder->weights().embedding.bytes);
  EXPECT_EQ(folder->weights().skipped_tensors, 2u);
  tensors.erase("lm_head.weight");
  const auto without = OpenTensors(tensors, tied);
  ASSERT_TRUE(without) << without.error().message();
  EXPECT_EQ(without->weights().parameters, folder->weights().parameters);
}

TEST(MhlaFolderTest, TheUnfusedNormHasAnotherName) {
  TestTensors tensors = Tensors();
  for (const std::string layer : {"0", "1"}) {
    const std::string at = "model.layers." + layer + ".attn.";
    tensors.erase(at + "g_norm_swish_gate.weight");
    tensors[at + "g_norm.weight"] = Counting("BF16", {4});
  }
  EXPECT_EQ(Refusal(tensors, Config(R"(,"fuse_norm":false)")), "accepted");
  EXPECT_EQ(Refusal(tensors),
            "model.safetensors: tensor model.layers.0.attn.g_norm_swish_gate.weight: expected "
            "shape [4], found no such tensor");
}

TEST(MhlaFolderTest, EachMissingTensorIsNamed) {
  for (const auto& [name, tensor] : Tensors()) {
    TestTensors tensors = Tensors();
    tensors.erase(name);
    EXPECT_EQ(Refusal(tensors),
              fmt::format("model.safetensors: tensor {}: expected shape [{}], found no such tensor",
                          name, fmt::join(tensor.shape, ", ")));
  }
}

TEST(MhlaFolderTest, EachTensorOfAnotherShapeIsNamed) {
  for (const auto& [name, tensor] : Tensors()) {
    TestTensors tensors = Tensors();
    std::vector<uint64_t> shape = tensor.shape;
    shape.front() += 1;
    tensors[name] = Counting("BF16", shape);
    EXPECT_EQ(Refusal(tensors),
              fmt::format("model.safetensors: tensor {}: expected shape [{}], found [{}]", name,
                          fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
  }
}

TEST(MhlaFolderTest, WrongTypesUnknownTensorsAndCutFilesAreNamed) {
  TestTensors tensors = Tensors();
  tensors["model.norm.weight"] = Counting("I8", {8});
  EXPECT_EQ(Refusal(tensors),
            "model.safetensors: tensor model.norm.weight: expected F32, BF16 or F16, found I8");
  tensors = Tensors();
  tensors["model.layers.1.attn.gk_proj.0.weight"] = Counting("BF16", {16, 8});
  EXPECT_EQ(Refusal(tensors),
            "model.safetensors: tensor model.layers.1.attn.gk_proj.0.weight: expected only tensors "
            "of an MHLA language model with 2 layers, found this one of shape [16, 8]");
  const ScratchFolder folder;
  EXPECT_FALSE(MhlaFolder::Open(folder.path()));
  folder.Write("config.json", Config());
  EXPECT_FALSE(MhlaFolder::Open(folder.path()));
  const std::string whole = FileOf(Tensors());
  folder.Write("model.safetensors", whole.substr(0, whole.size() - 1));
  const auto cut = MhlaFolder::Open(folder.path());
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code(), ErrorCode::kCorruption);
  EXPECT_TRUE(cut.error().message().find(": model.safetensors: ") != std::string::npos)
      << cut.error().message();
}

}  // namespace
}  // namespace mneme::model

// A folder in the HLA layout with random weights, for tests of what loads and serves such folders.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/model/checkpoint_files.h"
#include "tests/support/random_floats.h"

namespace mneme::support {

struct HlaFolderSizes {
  int layers = 2, hidden = 24, wide = 36, vocab = 1500, heads = 2, key_dim = 8, value_dim = 12;
};

inline void WriteBytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// config.json and model.safetensors. `more` is put at the end of the configuration.
inline void WriteHlaFolder(const std::filesystem::path& folder, const HlaFolderSizes& sizes = {},
                           const std::string& more = "") {
  WriteBytes(
      folder / "config.json",
      fmt::format(R"({{"model_type":"hla","n_embd":{},"n_layer":{},"intermediate_size":{},)"
                  R"("vocab_size":{},"norm_eps":1e-6,"_norm_class":"SimpleRMSNorm",)"
                  R"("_mlp_class":"LLaMAMLP","mamba_init":true,"nope":true,)"
                  R"("gated_delta_per_layer":1,"gated_delta_variant":"gla_gdn",)"
                  R"("gated_delta_num_heads":{},"gated_delta_head_dim":{},)"
                  R"("gated_delta_expand_v":{},"gated_delta_use_short_conv":false,)"
                  R"("gated_delta_use_gate":true,"gated_delta_use_residual":false,)"
                  R"("mix_pool_size":16,"eos_token_id":2{}}})",
                  sizes.hidden, sizes.layers, sizes.wide, sizes.vocab, sizes.heads, sizes.key_dim,
                  static_cast<double>(sizes.value_dim) / sizes.key_dim, more));
  RandomFloats random(11);
  TestTensors tensors;
  const auto add = [&](const std::string& name, std::vector<int> shape, float scale,
                       float mean = 0.0f) {
    TestTensor& tensor = tensors[name];
    int64_t count = 1;
    for (const int size : shape) count *= size;
    std::vector<float> values = random.Many(count, scale);
    for (float& value : values) value += mean;
    tensor.shape.assign(shape.begin(), shape.end());
    tensor.bytes.resize(values.size() * sizeof(float));
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  };
  const auto from = [](int inputs) { return 1.7f / std::sqrt(static_cast<float>(inputs)); };
  const int keys = sizes.heads * sizes.key_dim;
  const int values = sizes.heads * sizes.value_dim;
  add("transformer.wte.weight", {sizes.vocab, sizes.hidden}, 0.3f);
  add("transformer.ln_f.weight", {sizes.hidden}, 0.2f, 1.0f);
  for (int layer = 0; layer < sizes.layers; ++layer) {
    const std::string at = fmt::format("transformer.h.{}.", layer);
    add(at + "norm_1.weight", {sizes.hidden}, 0.2f, 1.0f);
    add(at + "norm_2.weight", {sizes.hidden}, 0.2f, 1.0f);
    add(at + "mlp.gate_proj.weight", {2 * sizes.wide, sizes.hidden}, from(sizes.hidden));
    add(at + "mlp.down_proj.weight", {sizes.hidden, sizes.wide}, from(sizes.wide));
    for (const char* part : {"q", "k"})
      add(fmt::format("{}attn.{}_proj.weight", at, part), {keys, sizes.hidden}, from(sizes.hidden));
    for (const char* part : {"v", "g"})
      add(fmt::format("{}attn.{}_proj.weight", at, part), {values, sizes.hidden},
          from(sizes.hidden));
    for (const char* part : {"a", "b"})
      add(fmt::format("{}attn.{}_proj.weight", at, part), {sizes.heads, sizes.hidden},
          0.3f * from(sizes.hidden));
    add(at + "attn.o_proj.weight", {sizes.hidden, values}, from(values));
    add(at + "attn.A_log", {sizes.heads}, 1.0f, -1.0f);
    add(at + "attn.dt_bias", {sizes.heads}, 1.0f, -4.0f);
    add(at + "attn.D", {sizes.heads}, 0.0f, 1.0f);
    add(at + "attn.o_norm.weight", {sizes.value_dim}, 0.1f, 1.0f);
    for (const char* part : {"q", "pool_attn_k", "pool_attn_v", "pool_attn_o"})
      add(fmt::format("{}attn.route_{}_proj.weight", at, part),
          {sizes.heads, sizes.key_dim, sizes.key_dim}, 2.0f * from(sizes.key_dim));
  }
  WriteBytes(folder / "model.safetensors", FileOf(tensors));
}

// A tokenizer in Llama 2's form with 1,500 entries, as golden.
inline void WriteLlamaTokenizer(const std::filesystem::path& folder) {
  std::filesystem::copy(
      std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/llama_tokenizer/metaspace.json",
      folder / "tokenizer.json");
}

}  // namespace mneme::support

// Checkpoint files for tests, written byte by byte without the code that reads them: a temporary
// folder, safetensors files from a header and bytes, and a whole tiny model that may be bent.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace mneme::support {

class ScratchFolder {
 public:
  ScratchFolder() {
    // Memory where there is such a folder: these tests write thousands of files.
    std::filesystem::path parent = "/dev/shm";
    if (!std::filesystem::is_directory(parent)) parent = std::filesystem::temp_directory_path();
    std::string name = (parent / "mneme-model-XXXXXX").string();
    MNEME_CHECK(mkdtemp(name.data()) != nullptr, "{}", name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// A safetensors file of that header text and those tensor bytes.
inline std::string FileOf(std::string_view header, std::string_view tensors) {
  return LittleEndian(header.size()).append(header).append(tensors);
}

struct TestTensor {
  std::string dtype = "F32";
  std::vector<uint64_t> shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

inline uint64_t TestDtypeBytes(std::string_view dtype) {
  return dtype == "F32" || dtype == "I32" ? 4 : dtype == "BF16" || dtype == "F16" ? 2 : 1;
}

// A tensor whose bytes count up, so that no two places look alike.
inline TestTensor Counting(std::string dtype, std::vector<uint64_t> shape) {
  uint64_t bytes = TestDtypeBytes(dtype);
  for (const uint64_t size : shape) bytes *= size;
  TestTensor tensor{std::move(dtype), std::move(shape), std::string(bytes, '\0')};
  for (uint64_t i = 0; i < bytes; ++i) tensor.bytes[i] = static_cast<char>(i * 37 & 0x3f);
  return tensor;
}

inline std::string FileOf(const TestTensors& tensors,
                          const std::map<std::string, std::string>& metadata = {}) {
  std::string header = "{";
  std::string bytes;
  if (!metadata.empty()) {
    header += R"("__metadata__":{)";
    for (const auto& [key, value] : metadata)
      header += fmt::format(R"({}"{}":"{}")", header.back() == '{' ? "" : ",", key, value);
    header += "}";
  }
  for (const auto& [name, tensor] : tensors) {
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    header.size() == 1 ? "" : ",", name, tensor.dtype, fmt::join(tensor.shape, ","),
                    bytes.size(), bytes.size() + tensor.bytes.size());
    bytes += tensor.bytes;
  }
  return FileOf(header + "}", bytes);
}

// A model of two linear layers and one attention layer, with sizes that all differ.
//   D 10, F 14, vocab 20, G 2, H 4, K 6, V 8, Hq 4, Hkv 2, E 12
inline std::string TinyConfig(std::string_view more = "") {
  return fmt::format(
      R"({{"model_type":"qwen3_5_text","hidden_size":10,"intermediate_size":14,"vocab_size":20,)"
      R"("num_hidden_layers":3,"layer_types":["linear_attention","linear_attention",)"
      R"("full_attention"],"linear_num_key_heads":2,"linear_num_value_heads":4,)"
      R"("linear_key_head_dim":6,"linear_value_head_dim":8,"linear_conv_kernel_dim":4,)"
      R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":12,"rms_norm_eps":1e-6,)"
      R"("hidden_act":"silu","attention_bias":false,"max_position_embeddings":512,)"
      R"("rope_parameters":{{"rope_type":"default","rope_theta":10000,)"
      R"("partial_rotary_factor":0.5}}{}}})",
      more);
}

inline TestTensors TinyTensors(const std::string& prefix = "model.",
                               const std::string& dtype = "BF16", bool tied = false) {
  TestTensors tensors;
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    tensors[prefix + name] = Counting(dtype, std::move(shape));
  };
  add("embed_tokens.weight", {20, 10});
  add("norm.weight", {10});
  if (!tied) tensors["lm_head.weight"] = Counting(dtype, {20, 10});
  for (int layer = 0; layer < 3; ++layer) {
    const std::string at = fmt::format("layers.{}.", layer);
    add(at + "input_layernorm.weight", {10});
    add(at + "post_attention_layernorm.weight", {10});
    add(at + "mlp.gate_proj.weight", {14, 10});
    add(at + "mlp.up_proj.weight", {14, 10});
    add(at + "mlp.down_proj.weight", {10, 14});
    if (layer == 2) {
      add(at + "self_attn.q_proj.weight", {96, 10});
      add(at + "self_attn.k_proj.weight", {24, 10});
      add(at + "self_attn.v_proj.weight", {24, 10});
      add(at + "self_attn.o_proj.weight", {10, 48});
      add(at + "self_attn.q_norm.weight", {12});
      add(at + "self_attn.k_norm.weight", {12});
      continue;
    }
    add(at + "linear_attn.in_proj_qkv.weight", {56, 10});
    add(at + "linear_attn.in_proj_z.weight", {32, 10});
    add(at + "linear_attn.in_proj_b.weight", {4, 10});
    add(at + "linear_attn.in_proj_a.weight", {4, 10});
    add(at + "linear_attn.conv1d.weight", {56, 1, 4});
    add(at + "linear_attn.dt_bias", {4});
    add(at + "linear_attn.out_proj.weight", {10, 32});
    tensors[prefix + at + "linear_attn.A_log"] = Counting("F32", {4});
    tensors[prefix + at + "linear_attn.norm.weight"] = Counting("F32", {8});
  }
  return tensors;
}

}  // namespace mneme::support

// CheckModel answers whether a model folder is whole and computes what it should, before anybody
// relies on it: everything is opened, every number looked at, the tokenizer held against the
// vocabulary, and a few hundred tokens computed twice, as a prompt and one by one.
//
// Order:    files (SHA256SUMS, where the folder has it), tensors (names, shapes, types), numbers
//           (finite), tokenizer, memory (whether it fits), tokens. The first that fails ends it.
// Errors:   as the part that failed; besides, kCorruption: a number that is not finite, or the two
//           ways of computing disagree; kInvalidArgument: the tokenizer has more ids than the
//           model.
// Threads:  one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "kernels/dtype.h"

namespace mneme::model {

// Tokens computed twice: across a chunk's border, and of an MHLA model's block.
inline constexpr int kCheckTokens = 300;
// How far the logits of the two ways may be apart, in shares of the largest, at least of 1.
// Rounding of pages and of f32 sums stays far below it; a wrong weight or a wrong order does not.
inline constexpr float kCheckTolerance = 0.02f;

struct ModelCheckOptions {
  std::string reader;  // empty: the folder's own choice
  kernels::Dtype page_dtype = kernels::Dtype::kF16;
  int threads = 1;
  uint64_t host_bytes_max = uint64_t{1} << 31;  // cap on history, bytes
};

struct ModelCheckPart {
  std::string name;   // `numbers`
  std::string found;  // `48,698 in 39 tensors, all finite`
};

// `report` is called with each part that passed.
Status CheckModel(const std::filesystem::path& folder, const ModelCheckOptions& options,
                  const std::function<void(const ModelCheckPart&)>& report);

}  // namespace mneme::model

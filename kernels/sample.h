// The table entry `logits_sample`: final norm, head and the draw of a token, for chosen rows.
//
// Logits always come from the decode form of gemm.h, whatever the row's role: they depend on the
// row of x alone, and a prompt needs one row of them.
//
// A token is drawn in this order:
//   1. logits of `seen` ids: divided by repetition_penalty where positive, else multiplied
//   2. temperature 0: the largest, lowest id on ties. Else weights e^((logit -
//   largest)/temperature)
//   3. top_k: the k largest, lower ids first on ties
//   4. top_p: of these, the fewest largest whose weights reach top_p of their sum
//   5. min_p: of these, those of at least min_p times the largest weight
//   6. the first whose running sum, largest first (by id where 3 and 4 are off), exceeds
//      UniformOf(seed, position) times the sum
//
// Errors:   kInvalidArgument  an array is null or a number is out of range; nothing was computed
//           kInternal         a logit is NaN or +infinity; names the row. Its token is -1, the
//           other
//                             rows are whole
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "kernels/kernel_table.h"

namespace mneme::kernels {

Status Validate(const LogitsSampleArgs& args);

// Philox 4x32 with 10 rounds (Salmon et al., 2011): random numbers as a function of a counter.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// In [0, 1), a multiple of 2^-53: Philox of counter `position` and key `seed`.
double UniformOf(uint64_t seed, uint64_t position);

namespace cpu {

Status LogitsSample(const LogitsSampleArgs& args, Stream& stream);

struct Drawn {
  int32_t token = -1;
  float log_probability = 0;  // at temperature 1, before any of the steps above
};

// Scratch that DrawToken needs per id, in floats.
inline constexpr int64_t kDrawFloats = 3;

// `scratch` is [kDrawFloats * logits.size()]. kInternal as above, without the row.
Result<Drawn> DrawToken(std::span<const float> logits, const Sampling& sampling,
                        std::span<float> scratch);

}  // namespace cpu
}  // namespace mneme::kernels

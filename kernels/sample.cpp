#include "kernels/sample.h"

#include <cmath>

#include "kernels/args.h"

namespace mneme::kernels {
namespace {

Status ValidateSampling(const Sampling& sampling, int32_t index, int32_t vocab) {
  const auto refuse = [index](const char* name, auto value) {
    return Fail(ErrorCode::kInvalidArgument, "logits sample: row {} of the list: {} is {}", index,
                name, value);
  };
  // Written so that NaN is refused too.
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    return refuse("temperature", sampling.temperature);
  if (sampling.top_k < 0) return refuse("top_k", sampling.top_k);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return refuse("top_p", sampling.top_p);
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) return refuse("min_p", sampling.min_p);
  if (!(sampling.repetition_penalty > 0) || std::isinf(sampling.repetition_penalty))
    return refuse("repetition_penalty", sampling.repetition_penalty);
  if (sampling.seen_count < 0) return refuse("seen_count", sampling.seen_count);
  if (sampling.seen_count > 0 && sampling.seen == nullptr)
    return Fail(ErrorCode::kInvalidArgument, "logits sample: seen is null");
  for (int32_t i = 0; i < sampling.seen_count; ++i) {
    if (sampling.seen[i] < 0 || sampling.seen[i] >= vocab)
      return refuse("a seen id", sampling.seen[i]);
  }
  return {};
}

}  // namespace

Status Validate(const LogitsSampleArgs& args) {
  MNEME_TRY(RequireStep("logits sample", args.step));
  if (args.count < 0)
    return Fail(ErrorCode::kInvalidArgument, "logits sample: count is {}", args.count);
  if (args.count == 0) return {};
  MNEME_TRY(RequirePointers("logits sample", {{"norm_weight", args.norm_weight},
                                              {"head", args.head},
                                              {"x", args.x},
                                              {"rows", args.rows},
                                              {"logits", args.logits}}));
  MNEME_TRY(RequirePositive("logits sample", {{"vocab", args.vocab}}));
  if (args.vocab > args.head->rows())
    return Fail(ErrorCode::kInvalidArgument, "logits sample: vocab is {}, the head has {}",
                args.vocab, args.head->rows());
  for (int32_t i = 0; i < args.count; ++i) {
    if (args.rows[i] < 0 || args.rows[i] >= args.step->rows)
      return Fail(ErrorCode::kInvalidArgument, "logits sample: row {} of {}", args.rows[i],
                  args.step->rows);
  }
  if (args.sampling == nullptr) return {};
  MNEME_TRY(RequirePointers("logits sample", {{"token", args.token}}));
  for (int32_t i = 0; i < args.count; ++i)
    MNEME_TRY(ValidateSampling(args.sampling[i], i, args.vocab));
  return {};
}

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = uint64_t{0xd2511f53u} * counter[0];
    const uint64_t b = uint64_t{0xcd9e8d57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  return counter;
}

double UniformOf(uint64_t seed, uint64_t position) {
  const auto words =
      Philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{words[1]} << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace mneme::kernels

#include "kernels/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/activation.h"
#include "kernels/args.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"

namespace mneme::kernels::cpu {
namespace {

// The largest logit, or the complaint about one that no token can be drawn with.
Result<float> LargestOf(std::span<const float> logits) {
  float largest = logits[0];
  bool whole = true;
  for (const float each : logits) {
    whole = whole && !std::isnan(each);
    largest = std::max(largest, each);
  }
  if (whole && std::isfinite(largest)) return largest;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id]))
      return Fail(ErrorCode::kInternal, "logit of id {} is not a number", id);
    if (std::isinf(logits[id]) && logits[id] > 0)
      return Fail(ErrorCode::kInternal, "logit of id {} is infinite", id);
  }
  return Fail(ErrorCode::kInternal, "every logit is minus infinity");
}

// In double, in 8 interleaved partial sums: one order, and the additions do not wait.
double SumOf(std::span<const float> weights) {
  double sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= weights.size(); i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += static_cast<double>(weights[i + lane]);
  }
  for (size_t lane = 0; i + lane < weights.size(); ++lane)
    sums[lane] += static_cast<double>(weights[i + lane]);
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

// The candidates of one draw, and those of them that are in order already.
class Ranking {
 public:
  Ranking(std::span<const float> scores, std::span<int32_t> ids) : scores_(scores), ids_(ids) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  // The id at `place`, largest score first, lower id first on ties. Sorts ever longer prefixes.
  int32_t At(size_t place) {
    while (place >= sorted_) Grow(std::max<size_t>(64, 4 * sorted_));
    return ids_[place];
  }

 private:
  void Grow(size_t wanted) {
    const auto before = [this](int32_t a, int32_t b) {
      const float x = scores_[static_cast<size_t>(a)];
      const float y = scores_[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    const size_t end = std::min(wanted, ids_.size());
    const auto from = ids_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto to = ids_.begin() + static_cast<std::ptrdiff_t>(end);
    if (end < ids_.size()) std::nth_element(from, to, ids_.end(), before);
    std::sort(from, to, before);
    sorted_ = end;
  }

  std::span<const float> scores_;
  std::span<int32_t> ids_;
  size_t sorted_ = 0;
};

// Steps 3 to 6 of sample.h where the weights must be ranked.
int32_t DrawRanked(std::span<const float> scores, std::span<const float> weights,
                   const Sampling& sampling, double uniform, std::span<int32_t> ids) {
  Ranking ranking(scores, ids);
  size_t kept = scores.size();
  if (sampling.top_k > 0) kept = std::min(kept, static_cast<size_t>(sampling.top_k));
  const auto weight_at = [&](size_t place) {
    return static_cast<double>(weights[static_cast<size_t>(ranking.At(place))]);
  };
  double whole = 0;
  if (kept == scores.size()) {
    whole = SumOf(weights);
  } else {
    for (size_t place = 0; place < kept; ++place) whole += weight_at(place);
  }
  if (sampling.top_p < 1) {
    double sum = 0;
    size_t place = 0;
    while (place < kept && sum < static_cast<double>(sampling.top_p) * whole)
      sum += weight_at(place++);
    kept = std::max<size_t>(1, place);
  }
  double sum = 0;
  size_t taken = 0;
  for (; taken < kept; ++taken) {  // the largest weight is 1
    if (weight_at(taken) < static_cast<double>(sampling.min_p)) break;
    sum += weight_at(taken);
  }
  const double target = uniform * sum;
  double running = 0;
  for (size_t place = 0; place < taken; ++place) {
    running += weight_at(place);
    if (running > target) return ranking.At(place);
  }
  return ranking.At(0);  // only where rounding left the sum at the target
}

int32_t DrawUnranked(std::span<const float> weights, float min_p, double uniform) {
  double sum = 0;
  for (const float each : weights) sum += each >= min_p ? static_cast<double>(each) : 0.0;
  const double target = uniform * sum;
  double running = 0;
  int32_t last = 0;
  for (size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] < min_p || weights[id] == 0) continue;
    running += static_cast<double>(weights[id]);
    last = static_cast<int32_t>(id);
    if (running > target) break;
  }
  return last;
}

void Penalise(const Sampling& sampling, std::span<float> scores) {
  if (sampling.repetition_penalty == 1) return;
  for (int32_t i = 0; i < sampling.seen_count; ++i) {
    float& score = scores[static_cast<size_t>(sampling.seen[i])];
    score = score > 0 ? score / sampling.repetition_penalty : score * sampling.repetition_penalty;
  }
}

}  // namespace

Result<Drawn> DrawToken(std::span<const float> logits, const Sampling& sampling,
                        std::span<float> scratch) {
  const size_t size = logits.size();
  MNEME_CHECK(scratch.size() >= kDrawFloats * size, "scratch {} for {}", scratch.size(), size);
  const auto checked = LargestOf(logits);
  MNEME_TRY(checked);
  const std::span<float> scores = scratch.subspan(0, size);
  const std::span<float> weights = scratch.subspan(size, size);
  std::copy(logits.begin(), logits.end(), scores.begin());
  Penalise(sampling, scores);

  Drawn drawn;
  const auto largest = std::max_element(scores.begin(), scores.end());  // the first of equals
  if (sampling.temperature == 0) {
    drawn.token = static_cast<int32_t>(largest - scores.begin());
  } else {
    for (size_t id = 0; id < size; ++id)
      weights[id] = (scores[id] - *largest) / sampling.temperature;
    Exp(weights.data(), static_cast<int64_t>(size), 0.0f, weights.data());
    const double uniform = UniformOf(sampling.seed, sampling.position);
    if (sampling.top_k > 0 || sampling.top_p < 1) {
      auto* ids = reinterpret_cast<int32_t*>(scratch.data() + 2 * size);
      drawn.token = DrawRanked(scores, weights, sampling, uniform, {ids, size});
    } else {
      drawn.token = DrawUnranked(weights, sampling.min_p, uniform);
    }
  }
  Exp(logits.data(), static_cast<int64_t>(size), *checked, weights.data());
  drawn.log_probability =
      static_cast<float>(static_cast<double>(logits[static_cast<size_t>(drawn.token)]) -
                         static_cast<double>(*checked) - std::log(SumOf(weights)));
  return drawn;
}

Status LogitsSample(const LogitsSampleArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  if (args.count == 0) return {};
  CpuStream& cpu = AsCpu(stream);
  if (kDrawFloats * args.vocab > static_cast<int64_t>(kScratchFloats))
    return Fail(ErrorCode::kInvalidArgument, "logits sample: vocab is {}", args.vocab);
  const int64_t width = args.head->cols();
  float* normed = cpu.shared(static_cast<size_t>(args.count * width));
  cpu.pool().Run(args.count, [&](int64_t i, int) {
    Norm(args.norm, args.x + args.rows[i] * width, args.norm_weight, width, args.epsilon,
         normed + i * width);
  });
  MatrixProduct product;
  product.weight = args.head;
  product.x = normed;
  product.x_stride = width;
  product.out = args.logits;
  product.out_stride = args.vocab;
  product.rows = args.count;
  product.outputs = args.vocab;
  MultiplyRows(product, stream);
  if (args.sampling == nullptr) return {};

  std::vector<Status> outcomes(static_cast<size_t>(args.count));
  cpu.pool().Run(args.count, [&](int64_t i, int thread) {
    const std::span<const float> logits(args.logits + i * args.vocab,
                                        static_cast<size_t>(args.vocab));
    const auto drawn = DrawToken(logits, args.sampling[i], cpu.scratch(thread));
    if (!drawn) outcomes[static_cast<size_t>(i)] = Fail(drawn.error());
    const Drawn result = drawn ? *drawn : Drawn();
    args.token[i] = result.token;
    if (args.log_probability != nullptr) args.log_probability[i] = result.log_probability;
  });
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i]) continue;
    return Fail(
        std::move(outcomes[i]).error().Within(fmt::format("logits sample: row {}", args.rows[i])));
  }
  return {};
}

}  // namespace mneme::kernels::cpu

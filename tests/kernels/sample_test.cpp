// Philox against its published answers; draws against the distribution that each setting defines
// (chi-square, fixed seeds) and, set by set, against a longhand choice of candidates.
#include "kernels/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/gemm.h"
#include "tests/support/dense_reference.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels::cpu {
namespace {

using support::RandomFloats;

Drawn Draw(const std::vector<float>& logits, const Sampling& sampling) {
  std::vector<float> scratch(kDrawFloats * logits.size());
  const auto drawn = DrawToken(logits, sampling, scratch);
  EXPECT_TRUE(drawn);
  return drawn ? *drawn : Drawn();
}

// Probabilities after the steps of sample.h, longhand: rank all, cut, cut, cut, divide.
std::vector<double> DistributionOf(const std::vector<float>& logits, const Sampling& s) {
  std::vector<double> scores(logits.begin(), logits.end());
  for (int32_t i = 0; i < s.seen_count; ++i) {
    double& score = scores[static_cast<size_t>(s.seen[i])];
    const auto penalty = static_cast<double>(s.repetition_penalty);
    score = score > 0 ? score / penalty : score * penalty;
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (s.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(s.top_k)));
  std::vector<double> p(scores.size(), 0.0);
  double whole = 0;
  for (const size_t id : order)
    whole += p[id] = std::exp((scores[id] - scores[order[0]]) / static_cast<double>(s.temperature));
  double sum = 0;
  bool open = true;
  for (const size_t id : order) {
    const double weight = p[id];
    if (!open || weight < static_cast<double>(s.min_p)) p[id] = 0;
    sum += weight;
    if (s.top_p < 1 && sum >= static_cast<double>(s.top_p) * whole) open = false;
  }
  const double kept = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& each : p) each /= kept;
  return p;
}

// Draws at many positions must fit the distribution: Pearson's statistic against its mean plus five
// standard deviations, and never an id of probability 0.
void ExpectDrawsFit(const std::vector<float>& logits, Sampling sampling) {
  const std::vector<double> p = DistributionOf(logits, sampling);
  constexpr int kDraws = 20'000;
  std::vector<int> counts(p.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    sampling.position = static_cast<uint64_t>(i);
    ++counts[static_cast<size_t>(Draw(logits, sampling).token)];
  }
  double statistic = 0;
  int freedom = -1;
  for (size_t id = 0; id < p.size(); ++id) {
    if (p[id] == 0) {
      ASSERT_EQ(counts[id], 0) << "id " << id << " is not a candidate";
      continue;
    }
    const double expected = p[id] * kDraws;
    statistic += (counts[id] - expected) * (counts[id] - expected) / expected;
    ++freedom;
  }
  EXPECT_LE(statistic, freedom + 5 * std::sqrt(2.0 * freedom) + 1e-9) << freedom;
}

TEST(PhiloxTest, GivesThePublishedAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformTest, IsFlatOverPositionsAndOverSeeds) {
  for (const bool by_seed : {false, true}) {
    std::vector<int> counts(100, 0);
    for (uint64_t i = 0; i < 100'000; ++i) {
      const double u = by_seed ? UniformOf(i, 7) : UniformOf(7, i);
      ASSERT_GE(u, 0.0);
      ASSERT_LT(u, 1.0);
      ++counts[static_cast<size_t>(u * 100)];
    }
    double statistic = 0;
    for (const int count : counts) statistic += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(statistic, 99 + 5 * std::sqrt(198.0));
  }
}

TEST(DrawTokenTest, TemperatureZeroTakesTheLargestAndTheLowestIdOnTies) {
  EXPECT_EQ(Draw({1.0f, 3.0f, 3.0f, 2.0f}, {}).token, 1);
  EXPECT_EQ(Draw({-5.0f}, {}).token, 0);
  const float low = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(Draw({low, low, -7.0f}, {}).token, 2);
}

TEST(DrawTokenTest, FollowsTheDistributionOfEverySetting) {
  const std::vector<float> logits = RandomFloats(3).Many(30, 2.0f);
  Sampling plain{.temperature = 1, .seed = 5};
  ExpectDrawsFit(logits, plain);
  ExpectDrawsFit(logits, {.temperature = 0.5f, .seed = 6});
  ExpectDrawsFit(logits, {.temperature = 1, .top_k = 7, .seed = 7});
  ExpectDrawsFit(logits, {.temperature = 1, .top_p = 0.6f, .seed = 8});
  ExpectDrawsFit(logits, {.temperature = 1, .min_p = 0.3f, .seed = 9});
  ExpectDrawsFit(logits, {.temperature = 2, .top_k = 20, .top_p = 0.9f, .min_p = 0.1f, .seed = 1});
  const std::vector<int32_t> seen = {0, 3, 4, 9};
  ExpectDrawsFit(logits, {.temperature = 1,
                          .repetition_penalty = 1.5f,
                          .seed = 2,
                          .seen = seen.data(),
                          .seen_count = 4});
}

TEST(DrawTokenTest, RanksFarIntoALargeVocabulary) {
  // Flat: top_p 0.9 keeps the first 270 ids, top_k 200 the first 200.
  const std::vector<float> flat(300, 0.5f);
  std::set<int32_t> by_p;
  std::set<int32_t> by_k;
  for (uint64_t i = 0; i < 4'000; ++i) {
    by_p.insert(Draw(flat, {.temperature = 1, .top_p = 0.9f, .seed = 1, .position = i}).token);
    by_k.insert(Draw(flat, {.temperature = 1, .top_k = 200, .seed = 1, .position = i}).token);
  }
  EXPECT_EQ(*by_p.begin(), 0);
  EXPECT_EQ(*by_p.rbegin(), 269);
  EXPECT_EQ(by_p.size(), 270u);
  EXPECT_EQ(*by_k.rbegin(), 199);
  EXPECT_EQ(by_k.size(), 200u);
}

TEST(DrawTokenTest, TinyLimitsLeaveTheMostLikelyToken) {
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f};
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(Draw(logits, {.temperature = 5, .top_k = 1, .position = i}).token, 1);
    EXPECT_EQ(Draw(logits, {.temperature = 5, .top_p = 1e-6f, .position = i}).token, 1);
    EXPECT_EQ(Draw(logits, {.temperature = 5, .min_p = 1, .position = i}).token, 1);
    EXPECT_EQ(Draw(logits, {.temperature = 1e-30f, .position = i}).token, 1);
  }
}

TEST(DrawTokenTest, PenaltyTurnsTheLargestAwayAtTemperatureZeroToo) {
  const std::vector<int32_t> seen = {1, 2};
  const Sampling sampling{.repetition_penalty = 2, .seen = seen.data(), .seen_count = 2};
  EXPECT_EQ(Draw({1.1f, 2.0f, -1.0f}, sampling).token, 0);    // 2.0 becomes 1.0
  EXPECT_EQ(Draw({-1.5f, -9.0f, -1.0f}, sampling).token, 0);  // -1.0 becomes -2.0
}

TEST(DrawTokenTest, LogProbabilityIsOfTheLogitsAsTheyAre) {
  const std::vector<float> logits = RandomFloats(4).Many(50, 3.0f);
  double total = 0;
  for (const float each : logits) total += std::exp(static_cast<double>(each));
  const std::vector<int32_t> seen = {1};
  for (uint64_t i = 0; i < 20; ++i) {
    const Drawn drawn = Draw(logits, {.temperature = 3,
                                      .top_k = 40,
                                      .repetition_penalty = 3,
                                      .position = i,
                                      .seen = seen.data(),
                                      .seen_count = 1});
    EXPECT_NEAR(drawn.log_probability,
                static_cast<double>(logits[static_cast<size_t>(drawn.token)]) - std::log(total),
                1e-5);
  }
}

class LogitsSampleTest : public ::testing::Test {
 protected:
  LogitsSampleTest()
      : head_(128, 33, Dtype::kBf16, RandomFloats(1).Many(128 * 33)),
        norm_(RandomFloats(2).Many(33, 0.5f)),
        x_(RandomFloats(3).Many(64 * 33)) {
    const TensorView view = head_.view();
    packed_ = std::move(PanelMatrix::Pack({&view, 1}).value());
    step_.rows = 64;
    args_.step = &step_;
    args_.norm_weight = norm_.data();
    args_.epsilon = 1e-6f;
    args_.head = packed_.get();
    args_.vocab = kVocab;
    args_.x = x_.data();
    args_.rows = rows_.data();
    args_.count = 3;
    args_.sampling = sampling_.data();
    args_.logits = logits_.data();
    args_.token = token_.data();
    args_.log_probability = log_probability_.data();
  }

  std::string Refusal() {
    const Status status = LogitsSample(args_, stream_);
    if (status) return "";
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    return status.error().message();
  }

  // The logits and the largest tokens of the chosen rows.
  void ExpectHeadOf(const support::Doubles& normed) {
    const auto all = support::MatrixProductOf(normed, head_.floats(), 64, 128, 33);
    support::Doubles expected;
    for (size_t i = 0; i < 3; ++i) {
      const auto from = all.begin() + rows_[i] * 128;
      expected.insert(expected.end(), from, from + kVocab);
      EXPECT_EQ(token_[i], std::max_element(from, from + kVocab) - from);
    }
    support::ExpectNear(logits_, expected, 1e-4);
  }

  static constexpr int32_t kVocab = 101;
  support::StoredMatrix head_;
  std::unique_ptr<PackedMatrix> packed_;
  std::vector<float> norm_;
  std::vector<float> x_;
  std::vector<int32_t> rows_ = {63, 0, 5};
  std::vector<Sampling> sampling_ = std::vector<Sampling>(3);
  std::vector<float> logits_ = std::vector<float>(3 * kVocab);
  std::vector<int32_t> token_ = std::vector<int32_t>(3);
  std::vector<float> log_probability_ = std::vector<float>(3);
  StepTable step_;
  LogitsSampleArgs args_;
  CpuStream stream_{2};
};

TEST_F(LogitsSampleTest, EqualsNormHeadAndTheLargest) {
  ASSERT_TRUE(LogitsSample(args_, stream_));
  ExpectHeadOf(support::ZeroCentredNormOf(support::ToDoubles(x_), norm_, 1e-6));
}

TEST_F(LogitsSampleTest, APlainNormWeightIsTakenAsItIs) {
  args_.norm = NormWeight::kPlain;
  ASSERT_TRUE(LogitsSample(args_, stream_));
  ExpectHeadOf(support::PlainNormOf(support::ToDoubles(x_), norm_, 1e-6));
}

TEST_F(LogitsSampleTest, BitsDependOnTheRowAloneAndOnNoForm) {
  for (Sampling& each : sampling_) each = {.temperature = 1, .top_p = 0.9f, .seed = 4};
  ASSERT_TRUE(LogitsSample(args_, stream_));
  const std::vector<float> expected(logits_.begin() + kVocab, logits_.begin() + 2 * kVocab);
  const int32_t token = token_[1];

  step_.form = RowForm::kPrefill;
  const int32_t row = 0;
  args_.rows = &row;
  args_.count = 1;
  CpuStream one(1);
  ASSERT_TRUE(LogitsSample(args_, one));
  support::ExpectSameBits({logits_.begin(), logits_.begin() + kVocab}, expected);
  EXPECT_EQ(token_[0], token);
}

TEST_F(LogitsSampleTest, DrawsNothingWithoutSampling) {
  args_.sampling = nullptr;
  args_.token = nullptr;
  args_.log_probability = nullptr;
  ASSERT_TRUE(LogitsSample(args_, stream_));
  EXPECT_NE(logits_[0], 0.0f);
}

TEST_F(LogitsSampleTest, NamesTheRowWhoseLogitIsNotANumberAndServesTheOthers) {
  x_[5 * 33 + 2] = std::numeric_limits<float>::quiet_NaN();
  const Status status = LogitsSample(args_, stream_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kInternal);
  EXPECT_EQ(status.error().message(), "logits sample: row 5: logit of id 0 is not a number");
  EXPECT_EQ(token_[2], -1);
  EXPECT_GE(token_[0], 0);
  EXPECT_GE(token_[1], 0);
}

TEST_F(LogitsSampleTest, RefusesArgsThatMeanNothing) {
  EXPECT_EQ(Refusal(), "");
  sampling_[1].temperature = -1;
  EXPECT_EQ(Refusal(), "logits sample: row 1 of the list: temperature is -1");
  sampling_[1].temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Refusal(), "logits sample: row 1 of the list: temperature is nan");
  sampling_[1] = {.top_k = -2};
  EXPECT_EQ(Refusal(), "logits sample: row 1 of the list: top_k is -2");
  sampling_[1] = {.top_p = 0};
  EXPECT_EQ(Refusal(), "logits sample: row 1 of the list: top_p is 0");
  sampling_[1] = {.min_p = 2};
  EXPECT_EQ(Refusal(), "logits sample: row 1 of the list: min_p is 2");
  sampling_[1] = {.repetition_penalty = 0};
  EXPECT_EQ(Refusal(), "logits sample: row 1 of the list: repetition_penalty is 0");
  const int32_t outside = kVocab;
  sampling_[1] = {.seen = &outside, .seen_count = 1};
  EXPECT_EQ(Refusal(), "logits sample: row 1 of the list: a seen id is 101");
  sampling_[1] = {};
  rows_[2] = 64;
  EXPECT_EQ(Refusal(), "logits sample: row 64 of 64");
  rows_[2] = 1;
  args_.vocab = 129;
  EXPECT_EQ(Refusal(), "logits sample: vocab is 129, the head has 128");
  args_.vocab = kVocab;
  args_.logits = nullptr;
  EXPECT_EQ(Refusal(), "logits sample: logits is null");
}

}  // namespace
}  // namespace mneme::kernels::cpu

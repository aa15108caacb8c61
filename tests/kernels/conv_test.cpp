// gdn_prepare against its formulas in double, and against itself in other steps: the convolution
// sees the same columns whether they come from the tail or from the slice, so the bits are equal.
#include "kernels/conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/gdn.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels {
namespace {

using support::ExpectNear;
using support::ExpectSameBits;
using support::RandomFloats;
using Doubles = std::vector<double>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kTolerance = 2e-6;  // docs/numerics.md: gdn_prepare

size_t Size(int value) { return static_cast<size_t>(value); }

// All that gdn_prepare writes, by position.
struct Prepared {
  std::vector<float> q, k, v, write_strength, log_decay;
};

class ConvCase {
 public:
  ConvCase(const LinearShape& shape, int tokens, int threads = 1)
      : shape_(shape), tokens_(tokens), stream_(threads) {
    RandomFloats random(31);
    raw_ = random.Many(tokens * shape.projected_width(), 2.0f);
    weight_ = random.Many(shape.conv_width() * kConvTaps);
    for (int h = 0; h < shape.value_heads; ++h) {
      decay_rate_.push_back(0.5f + static_cast<float>(h));
      dt_bias_.push_back(static_cast<float>(h) - 1.0f);
    }
    // A fresh session: memory promises nothing about the tail before the first token.
    conv_.assign(Size(2 * 3 * shape.conv_width()), kNan);
    route_key_.assign(Size(shape.key_width() * shape.chunk_tokens), kNan);
    result_.q.assign(Size(tokens * shape.key_width()), kNan);
    result_.k = result_.q;
    result_.v.assign(Size(tokens * shape.value_width()), kNan);
    result_.write_strength.assign(Size(tokens * shape.value_heads), kNan);
    result_.log_decay = result_.write_strength;
  }

  void Decode(int tokens, bool twice = false) {
    for (int i = 0; i < tokens; ++i) {
      Step(RowForm::kDecode, {{.row = 0, .tokens = 1, .position = position_}}, twice);
      ++position_;
    }
  }

  // One slice; the tokens must not leave the chunk.
  void Prefill(int tokens, bool twice = false) {
    std::vector<Piece> pieces;
    int at = position_;
    while (at < position_ + tokens) {
      const int n = std::min((at / kPieceTokens + 1) * kPieceTokens, position_ + tokens) - at;
      pieces.push_back(
          {.row = static_cast<int32_t>(pieces.size()) * kPieceTokens, .tokens = n, .position = at});
      at += n;
    }
    Step(RowForm::kPrefill, pieces, twice);
    position_ += tokens;
  }

  const Prepared& result() const { return result_; }
  const std::vector<float>& route_key() const { return route_key_; }
  // The half that the next step reads.
  std::vector<float> tail() const {
    const auto half = static_cast<std::ptrdiff_t>(conv_.size() / 2);
    return {conv_.begin() + conv_read_ * half, conv_.begin() + (conv_read_ + 1) * half};
  }

  float Raw(int position, int column) const {
    if (position < 0) return 0.0f;
    return raw_[Size(position * shape_.projected_width() + column)];
  }

  Doubles Convolved(int position) const {
    Doubles out;
    for (int c = 0; c < shape_.conv_width(); ++c) {
      double sum = shape_.conv_taps == 0 ? static_cast<double>(Raw(position, c)) : 0.0;
      for (int tap = 0; tap < shape_.conv_taps; ++tap)
        sum += static_cast<double>(weight_[Size(c * kConvTaps + tap)]) *
               static_cast<double>(Raw(position - 3 + tap, c));
      out.push_back(sum / (1.0 + std::exp(-sum)));
    }
    return out;
  }

  double Decay(int position, int head) const {
    const int column = shape_.conv_width() + shape_.value_width() + shape_.value_heads + head;
    const double x =
        static_cast<double>(Raw(position, column)) + static_cast<double>(dt_bias_[Size(head)]);
    return -static_cast<double>(decay_rate_[Size(head)]) * std::log1p(std::exp(x));
  }

  void SetRaw(int position, int column, float value) {
    raw_[Size(position * shape_.projected_width() + column)] = value;
  }

 private:
  void Step(RowForm form, const std::vector<Piece>& pieces, bool twice) {
    const bool decode = form == RowForm::kDecode;
    const int rows = decode ? 1 : static_cast<int>(pieces.size()) * kPieceTokens;
    std::vector<float> projected(Size(rows * shape_.projected_width()), kNan);
    std::vector<int32_t> position(Size(rows), 0), session(Size(rows), -1);
    for (const Piece& piece : pieces) {
      for (int i = 0; i < piece.tokens; ++i) {
        position[Size(piece.row + i)] = piece.position + i;
        session[Size(piece.row + i)] = 0;
        std::copy_n(raw_.begin() + (piece.position + i) * shape_.projected_width(),
                    shape_.projected_width(),
                    projected.begin() + (piece.row + i) * shape_.projected_width());
      }
    }
    float ignored = 0.0f;
    OpenRows open;
    open.k = open.u = open.c = &ignored;
    open.conv = shape_.conv_taps == 0 ? nullptr : conv_.data();
    open.route_key = route_key_.data();
    SessionView view;
    view.open = &open;
    view.conv_read = conv_read_;
    StepTable step;
    step.form = form;
    step.rows = rows;
    step.position = position.data();
    step.session = session.data();
    step.pieces = pieces.data();
    step.piece_count = decode ? 0 : static_cast<int32_t>(pieces.size());
    step.sessions = &view;
    step.session_count = 1;
    Prepared out;
    out.q.assign(Size(rows * shape_.key_width()), kNan);
    out.k = out.q;
    out.v.assign(Size(rows * shape_.value_width()), kNan);
    out.write_strength.assign(Size(rows * shape_.value_heads), kNan);
    out.log_decay = out.write_strength;
    GdnPrepareArgs args;
    args.step = &step;
    args.shape = shape_;
    args.projected = projected.data();
    args.conv_weight = shape_.conv_taps == 0 ? nullptr : weight_.data();
    args.decay_rate = decay_rate_.data();
    args.dt_bias = dt_bias_.data();
    args.q = out.q.data();
    args.k = out.k.data();
    args.v = out.v.data();
    args.write_strength = out.write_strength.data();
    args.log_decay = out.log_decay.data();
    ASSERT_TRUE(cpu::GdnPrepare(args, stream_));
    if (twice) {
      const std::vector<float> conv = conv_, keys = route_key_, q = out.q;
      ASSERT_TRUE(cpu::GdnPrepare(args, stream_));
      ExpectSameBits(conv_, conv);
      ExpectSameBits(route_key_, keys);
      ExpectSameBits(out.q, q);
    }
    conv_read_ = 1 - conv_read_;
    for (const Piece& piece : pieces) {
      const auto keep = [&](const std::vector<float>& from, int width, std::vector<float>& to) {
        std::copy_n(from.begin() + piece.row * width, piece.tokens * width,
                    to.begin() + piece.position * width);
        if (decode) return;
        for (int i = (piece.row + piece.tokens) * width; i < (piece.row + kPieceTokens) * width;
             ++i)
          ASSERT_EQ(from[Size(i)], 0.0f) << "padding";
      };
      keep(out.q, shape_.key_width(), result_.q);
      keep(out.k, shape_.key_width(), result_.k);
      keep(out.v, shape_.value_width(), result_.v);
      keep(out.write_strength, shape_.value_heads, result_.write_strength);
      keep(out.log_decay, shape_.value_heads, result_.log_decay);
    }
  }

  LinearShape shape_;
  int tokens_;
  cpu::CpuStream stream_;
  int position_ = 0;
  int32_t conv_read_ = 0;
  std::vector<float> raw_, weight_, decay_rate_, dt_bias_, conv_, route_key_;
  Prepared result_;
};

class ConvTest : public ::testing::TestWithParam<LinearShape> {};

TEST_P(ConvTest, FollowsItsFormulas) {
  const LinearShape& s = GetParam();
  ConvCase c(s, 100);
  c.Prefill(100);
  Doubles q, k, v, beta, g;
  for (int t = 0; t < 100; ++t) {
    const Doubles x = c.Convolved(t);
    for (int head = 0; head < 2 * s.key_heads; ++head) {
      const bool query = head < s.key_heads;
      double square = 1e-6;
      for (int d = 0; d < s.key_dim; ++d) square += std::pow(x[Size(head * s.key_dim + d)], 2);
      const double scale = (query ? 1.0 / std::sqrt(s.key_dim) : 1.0) / std::sqrt(square);
      for (int d = 0; d < s.key_dim; ++d)
        (query ? q : k).push_back(x[Size(head * s.key_dim + d)] * scale);
    }
    v.insert(v.end(), x.begin() + 2 * s.key_width(), x.end());
    for (int h = 0; h < s.value_heads; ++h) {
      const int column = s.conv_width() + s.value_width() + h;
      beta.push_back(1.0 / (1.0 + std::exp(-static_cast<double>(c.Raw(t, column)))));
      g.push_back(c.Decay(t, h));
    }
  }
  ExpectNear(c.result().q, q, kTolerance);
  ExpectNear(c.result().k, k, kTolerance);
  ExpectNear(c.result().v, v, kTolerance);
  ExpectNear(c.result().write_strength, beta, kTolerance);
  ExpectNear(c.result().log_decay, g, kTolerance);
}

TEST_P(ConvTest, EveryCutAndBothFormsGiveTheSameBits) {
  const LinearShape& s = GetParam();
  ConvCase whole(s, 120), single(s, 120), mixed(s, 120, /*threads=*/2);
  whole.Prefill(120);
  single.Decode(120);
  mixed.Prefill(1);
  mixed.Prefill(1, /*twice=*/true);
  mixed.Prefill(60, true);
  mixed.Decode(1, true);
  mixed.Prefill(2);
  mixed.Decode(3, true);
  mixed.Prefill(52);
  for (const ConvCase* other : {&single, &mixed}) {
    ExpectSameBits(other->result().q, whole.result().q);
    ExpectSameBits(other->result().k, whole.result().k);
    ExpectSameBits(other->result().v, whole.result().v);
    ExpectSameBits(other->result().write_strength, whole.result().write_strength);
    ExpectSameBits(other->result().log_decay, whole.result().log_decay);
    ExpectSameBits(other->tail(), whole.tail());
    ExpectSameBits(other->route_key(), whole.route_key());
  }
}

TEST_P(ConvTest, KeepsTheLastThreeColumnsAndTheRawKeys) {
  const LinearShape& s = GetParam();
  ConvCase c(s, 90);
  c.Prefill(2);
  const std::vector<float> early = c.tail();
  if (s.conv_taps != 0) {
    for (int d = 0; d < s.conv_width(); ++d) EXPECT_EQ(early[Size(d)], 0.0f);  // before the start
    EXPECT_EQ(early[Size(s.conv_width())], c.Raw(0, 0));
  }
  c.Prefill(88);
  const std::vector<float> tail = c.tail();
  for (int i = 0; i < 3 && s.conv_taps != 0; ++i) {
    for (int d = 0; d < s.conv_width(); ++d)
      ASSERT_EQ(tail[Size(i * s.conv_width() + d)], c.Raw(87 + i, d));
  }
  for (int g = 0; g < s.key_heads; ++g) {
    for (int t = 0; t < s.chunk_tokens; ++t) {
      const float key = c.route_key()[Size((g * s.chunk_tokens + t) * s.key_dim)];
      if (t < 90) {
        ASSERT_EQ(key, c.Raw(t, s.key_width() + g * s.key_dim));
      } else {
        ASSERT_TRUE(std::isnan(key)) << "a row of padding was written";
      }
    }
  }
}

TEST_P(ConvTest, HoldsTheDecayWithinRange) {
  const LinearShape& s = GetParam();
  ConvCase c(s, 2);
  const int column = s.conv_width() + s.value_width() + s.value_heads;
  c.SetRaw(0, column, 1e30f);    // softplus and the decay would leave the floats
  c.SetRaw(1, column, -200.0f);  // softplus is 0 in f32
  c.Prefill(2);
  EXPECT_EQ(c.result().log_decay[0], kLogDecayMin);
  EXPECT_EQ(c.result().log_decay[Size(s.value_heads)], 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvTest,
                         ::testing::Values(LinearShape{.key_heads = 1,
                                                       .value_heads = 1,
                                                       .key_dim = 1,
                                                       .value_dim = 1,
                                                       .chunk_tokens = 128,
                                                       .window_tokens = 16},
                                           LinearShape{.key_heads = 2,
                                                       .value_heads = 2,
                                                       .key_dim = 128,
                                                       .value_dim = 128,
                                                       .chunk_tokens = 256,
                                                       .window_tokens = 16},
                                           LinearShape{.key_heads = 2,
                                                       .value_heads = 6,
                                                       .key_dim = 18,
                                                       .value_dim = 11,
                                                       .chunk_tokens = 128,
                                                       .window_tokens = 32},
                                           LinearShape{.key_heads = 2,
                                                       .value_heads = 4,
                                                       .key_dim = 18,
                                                       .value_dim = 11,
                                                       .chunk_tokens = 128,
                                                       .window_tokens = 16,
                                                       .conv_taps = 0}));

TEST(ConvTapsTest, AnotherNumberIsRefused) {
  StepTable step;
  GdnPrepareArgs args;
  args.step = &step;
  args.shape = {.key_heads = 1,
                .value_heads = 1,
                .key_dim = 4,
                .value_dim = 4,
                .chunk_tokens = 128,
                .window_tokens = 16,
                .conv_taps = 3};
  const Status status = Validate(args);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "gdn_prepare: 3 conv taps, expected 4 or 0");
}

}  // namespace
}  // namespace mneme::kernels

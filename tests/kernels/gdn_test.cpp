// The table entries as entries: what they refuse and in which words, and that a row's bits do not
// depend on which other sessions share its step.
#include "kernels/gdn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/page_group.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels {
namespace {

using support::ExpectSameBits;
using support::RandomFloats;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr LinearShape kShape = {.key_heads = 2,
                                .value_heads = 4,
                                .key_dim = 18,
                                .value_dim = 10,
                                .chunk_tokens = 64,
                                .window_tokens = 16,
                                .pages_max = 2};

size_t Size(int value) { return static_cast<size_t>(value); }

// A decode step of several sessions, each with an open chunk of its own at its own place and one
// closed chunk, through prepare, route and read.
class Batch {
 public:
  explicit Batch(const std::vector<int>& members) : members_(members) {
    const int rows = static_cast<int>(members.size());
    for (int i = 0; i < rows; ++i) AddMember(members[Size(i)]);
    for (Member& member : memory_) {
      member.open = {.k = member.k.data(),
                     .u = member.u.data(),
                     .c = member.c.data(),
                     .route_key = nullptr,
                     .conv = member.conv.data()};
      for (const std::vector<std::byte>& group : member.groups)
        member.group_list.push_back(group.data());
      member.chunk.groups = member.group_list.data();
      member.chunk_list = {&member.chunk};
      member.view.open = &member.open;
      member.view.chunks = member.chunk_list.data();
      member.view.chunk_count = 1;
      views_.push_back(member.view);
    }
    step.rows = rows;
    step.position = position_.data();
    step.session = session_.data();
    step.sessions = views_.data();
    step.session_count = static_cast<int32_t>(views_.size());
    q_.assign(Size(rows * kShape.key_width()), kNan);
    k_ = q_;
    v_.assign(Size(rows * kShape.value_width()), kNan);
    out_ = v_;
    beta_.assign(Size(rows * kShape.value_heads), kNan);
    decay_ = beta_;
    const int lists = rows * kShape.key_heads;
    chunk_.assign(Size(lists * kShape.pages_max), -1);
    gate_.assign(chunk_.size(), kNan);
    group_.assign(chunk_.size(), nullptr);
    count_.assign(Size(lists), -1);
    FillArgs();
  }

  Status Run() {
    MNEME_TRY(cpu::GdnPrepare(prepare, stream_));
    MNEME_TRY(cpu::Route(route, stream_));
    return cpu::GdnRead(read, stream_);
  }

  std::vector<float> RowOf(int member) const {
    for (size_t row = 0; row < members_.size(); ++row) {
      const auto from = out_.begin() + static_cast<std::ptrdiff_t>(row) * kShape.value_width();
      if (members_[row] == member) return {from, from + kShape.value_width()};
    }
    return {};
  }
  const std::vector<float>& out() const { return out_; }

  StepTable step;
  GdnPrepareArgs prepare;
  RouteArgs route;
  GdnReadArgs read;
  int32_t misses = -1;

 private:
  struct Member {
    std::vector<float> k, u, c, conv;
    std::vector<std::vector<std::byte>> groups;
    std::vector<const std::byte*> group_list;
    std::vector<const ChunkView*> chunk_list;
    ChunkView chunk;
    OpenRows open;
    SessionView view;
  };

  // Member -1 is a row of padding.
  void AddMember(int id) {
    RandomFloats random(static_cast<uint64_t>(id + 100));
    const std::vector<float> row = random.Many(kShape.projected_width(), 2.0f);
    projected_.insert(projected_.end(), row.begin(), row.end());
    if (id < 0) {
      position_.push_back(0);
      session_.push_back(-1);
      return;
    }
    const int T = kShape.chunk_tokens, width = kShape.key_dim + kShape.value_dim;
    position_.push_back(T + 7 * id + 1);
    session_.push_back(static_cast<int32_t>(memory_.size()));
    Member member;
    member.k = random.Many(kShape.key_heads * T * kShape.key_dim, 0.3f);
    member.u = random.Many(kShape.value_heads * T * width, 0.3f);
    for (int i = 0; i < kShape.value_heads * T; ++i)
      member.c.push_back(-0.01f * static_cast<float>(i % T));
    member.conv = random.Many(2 * 3 * kShape.conv_width());
    const OpenRows closed = {.k = member.k.data(), .u = member.u.data(), .c = member.c.data()};
    std::vector<std::byte*> to;
    for (int g = 0; g < kShape.key_heads; ++g)
      member.groups.emplace_back(PageGroupBytes(2, kShape.key_dim, kShape.value_dim, Dtype::kF16));
    for (std::vector<std::byte>& group : member.groups) to.push_back(group.data());
    const int layer = 0;
    SealArgs seal;
    seal.shape = kShape;
    seal.open = {&closed, 1};
    seal.layer = {&layer, 1};
    seal.groups = to;
    EXPECT_TRUE(cpu::Seal(seal, stream_));
    memory_.push_back(std::move(member));
  }

  void FillArgs() {
    prepare.step = route.step = read.step = &step;
    prepare.shape = route.shape = read.shape = kShape;
    prepare.projected = route.projected = read.projected = projected_.data();
    prepare.conv_weight = weight_.data();
    prepare.decay_rate = head_.data();
    prepare.dt_bias = head_.data();
    prepare.q = q_.data();
    prepare.k = k_.data();
    prepare.v = v_.data();
    prepare.write_strength = beta_.data();
    prepare.log_decay = decay_.data();
    route.recent_chunks = 1;
    route.list = {chunk_.data(), gate_.data(), group_.data(), count_.data()};
    route.misses = &misses;
    read.q = q_.data();
    read.k = k_.data();
    read.v = v_.data();
    read.write_strength = beta_.data();
    read.log_decay = decay_.data();
    read.list = route.list;
    read.norm_weight = head_.data();
    read.epsilon = 1e-6f;
    read.out = out_.data();
  }

  std::vector<int> members_;
  cpu::CpuStream stream_{2};
  std::vector<Member> memory_;
  std::vector<SessionView> views_;
  std::vector<float> projected_, q_, k_, v_, beta_, decay_, out_;
  std::vector<float> weight_ = RandomFloats(3).Many(kShape.conv_width() * kConvTaps);
  std::vector<float> head_ = RandomFloats(4).Many(16);
  std::vector<int32_t> position_, session_, chunk_, count_;
  std::vector<float> gate_;
  std::vector<const std::byte*> group_;
};

TEST(GdnTest, ARowsBitsDoNotDependOnItsNeighbours) {
  Batch alone({2}), with({0, 2, 1}), padded({-1, 1, -1, 0, 2, -1});
  for (Batch* batch : {&alone, &with, &padded}) {
    const Status status = batch->Run();
    ASSERT_TRUE(status) << status.error().message();
  }
  ExpectSameBits(with.RowOf(2), alone.RowOf(2));
  ExpectSameBits(padded.RowOf(2), alone.RowOf(2));
  ExpectSameBits(padded.RowOf(0), with.RowOf(0));
  for (int d = 0; d < kShape.value_width(); ++d) EXPECT_EQ(padded.out()[Size(d)], 0.0f);
  for (const float each : alone.out()) EXPECT_TRUE(std::isfinite(each));
}

template <typename Change>
std::string Refusal(Change change) {
  Batch batch({0, 1});
  change(batch);
  const Status status = batch.Run();
  if (status) return "accepted";
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  return status.error().message();
}

TEST(GdnTest, RefusesWrongArgsAndNamesThem) {
  EXPECT_EQ(Refusal([](Batch&) {}), "accepted");
  EXPECT_EQ(Refusal([](Batch& b) { b.prepare.q = nullptr; }), "gdn_prepare: q is null");
  EXPECT_EQ(Refusal([](Batch& b) { b.route.misses = nullptr; }), "route: misses is null");
  EXPECT_EQ(Refusal([](Batch& b) { b.read.out = nullptr; }), "gdn_read: out is null");
  EXPECT_EQ(Refusal([](Batch& b) { b.read.shape.key_dim = 513; }),
            "gdn_read: key dim is 513, at most 512");
  EXPECT_EQ(Refusal([](Batch& b) { b.read.shape.value_heads = 3; }),
            "gdn_read: 3 value heads on 2 key heads");
  EXPECT_EQ(Refusal([](Batch& b) { b.read.shape.value_heads = 18; }),
            "gdn_read: value heads of a key head is 9, at most 8");
  EXPECT_EQ(Refusal([](Batch& b) { b.read.shape.chunk_tokens = 80; }),
            "gdn_read: chunks of 80 tokens, windows of 16");
  EXPECT_EQ(Refusal([](Batch& b) { b.read.shape.transition = TransitionKind::kScalar; }),
            "gdn_read: the transition of a chunk is scalar");
  EXPECT_EQ(Refusal([](Batch& b) { b.prepare.linear_layer = -1; }), "gdn_prepare: linear layer -1");
  EXPECT_EQ(Refusal([](Batch& b) { b.route.list.count = nullptr; }), "route: list count is null");
  EXPECT_EQ(Refusal([](Batch& b) { b.step.session_count = 1; }),
            "gdn_prepare: row 1 has session 1 of 1 and position 72");
  EXPECT_EQ(Refusal([](Batch& b) {
              b.route.routed_layer = 0;
              b.route.query_weight = b.route.bias = b.read.projected;
              b.route.theta = 0.1f;
            }),
            "route: chunk 0 is incomplete");
  EXPECT_EQ(Refusal([](Batch& b) {
              b.route.routed_layer = 0;
              b.route.query_weight = b.route.bias = b.read.projected;
              b.route.theta = 1.0f;
            }),
            "route: theta is 1");
  EXPECT_EQ(Refusal([](Batch& b) { b.read.epsilon = kNan; }), "gdn_read: epsilon is nan");
}

TEST(GdnTest, RefusesPiecesThatAreNoRunWithinAChunk) {
  const auto refused = [](std::vector<Piece> pieces) {
    Batch batch({0});
    batch.step.form = RowForm::kPrefill;
    batch.step.pieces = pieces.data();
    batch.step.piece_count = static_cast<int32_t>(pieces.size());
    batch.step.rows = batch.step.piece_count * kPieceTokens;
    batch.read.shape.chunk_tokens = 128;
    return !Validate(batch.read);
  };
  EXPECT_FALSE(refused({{.row = 0, .tokens = 64, .position = 0}}));
  EXPECT_FALSE(
      refused({{.row = 0, .tokens = 4, .position = 60}, {.row = 64, .tokens = 9, .position = 64}}));
  EXPECT_TRUE(refused({{.row = 0, .tokens = 65, .position = 0}}));
  EXPECT_TRUE(refused({{.row = 0, .tokens = 0, .position = 0}}));
  EXPECT_TRUE(refused({{.row = 0, .tokens = 5, .position = 60}}));  // over a cell's end
  EXPECT_TRUE(refused({{.row = 0, .tokens = 5, .position = -64}}));
  EXPECT_TRUE(refused({{.row = 64, .tokens = 5, .position = 0}}));  // not where it belongs
  EXPECT_TRUE(refused({{.row = 0, .tokens = 64, .position = 0},
                       {.row = 64, .tokens = 1, .position = 65}}));  // a gap
  EXPECT_TRUE(refused({{.row = 0, .tokens = 64, .position = 64},
                       {.row = 64, .tokens = 1, .position = 128}}));  // the next chunk
}

TEST(GdnTest, RefusesChunkOpsWhoseSizesDiffer) {
  cpu::CpuStream stream(1);
  const OpenRows open;
  SealArgs seal;
  seal.shape = kShape;
  seal.open = {&open, 1};
  EXPECT_FALSE(cpu::Seal(seal, stream));
  seal.dtype = Dtype::kI8;
  EXPECT_EQ(cpu::Seal(seal, stream).error().message(), "seal: pages of type I8");
  FoldArgs fold;
  fold.shape = kShape;
  fold.open = {&open, 1};
  EXPECT_EQ(cpu::Fold(fold, stream).error().message(), "fold: 1 layers, 0 states");
  float state = 0.0f;
  float* const states[] = {&state};
  fold.state = states;
  EXPECT_EQ(cpu::Fold(fold, stream).error().message(), "fold: open rows of layer 0 are null");
  FoldPagesArgs pages;
  pages.shape = kShape;
  EXPECT_EQ(cpu::FoldPages(pages, stream).error().message(), "fold_pages: chunk is null");
  const ChunkView chunk;
  const float gate = 1.5f;
  pages.chunk = &chunk;
  pages.gate = {&gate, 1};
  pages.state = states;
  EXPECT_EQ(cpu::FoldPages(pages, stream).error().message(),
            "fold_pages: the gate of layer 0 is 1.5");
  uint16_t representative = 0;
  RepresentArgs represent;
  represent.shape = kShape;
  represent.representatives = &representative;
  represent.last_window = 5;
  EXPECT_EQ(cpu::Represent(represent, stream).error().message(),
            "represent: windows 0 to 5 of 4, 0 of 0 layers");
  EXPECT_EQ(
      cpu::Index({.shape = kShape, .representatives = &representative}, stream).error().message(),
      "index: centroid is null");
}

TEST(GdnTest, SealRefusesATransitionThatIsNotFinite) {
  const int T = kShape.chunk_tokens;
  std::vector<float> k(Size(2 * T * 18), 0.1f), u(Size(4 * T * 28), 0.1f), c(Size(4 * T), 0.0f);
  u[Size(3 * T * 28 + 5)] = kNan;
  const OpenRows open = {.k = k.data(), .u = u.data(), .c = c.data()};
  std::vector<std::byte> a(PageGroupBytes(2, 18, 10, Dtype::kF16)), b = a;
  std::byte* const groups[] = {a.data(), b.data()};
  const int layer = 7;
  cpu::CpuStream stream(1);
  SealArgs seal;
  seal.shape = kShape;
  seal.open = {&open, 1};
  seal.layer = {&layer, 1};
  seal.groups = groups;
  EXPECT_EQ(cpu::Seal(seal, stream).error().message(),
            "pack page: layer 7 key head 1 value head 1 of it: a number is not finite");
}

TEST(GdnTest, SealsKvPagesKeysFirstAndHoldsThemWithinF16) {
  constexpr AttentionShape kKv = {.kv_heads = 2, .head_dim = 3, .chunk_tokens = 64};
  std::vector<float> key = RandomFloats(5).Many(2 * 64 * 3),
                     value = RandomFloats(6).Many(2 * 64 * 3);
  key[0] = 1e9f;
  const OpenKv open = {.key = key.data(), .value = value.data()};
  cpu::CpuStream stream(2);
  for (const Dtype dtype : {Dtype::kF16, Dtype::kF32}) {
    std::vector<std::byte> page(2 * 2 * 64 * 3 * BytesOf(dtype));
    std::byte* const pages[] = {page.data()};
    SealArgs seal;
    seal.dtype = dtype;
    seal.attention = kKv;
    seal.open_kv = {&open, 1};
    seal.kv = pages;
    ASSERT_TRUE(cpu::Seal(seal, stream));
    for (size_t i = 0; i < key.size(); ++i) {
      if (dtype == Dtype::kF32) {
        const float* stored = reinterpret_cast<const float*>(page.data());
        ASSERT_EQ(stored[i], key[i]);
        ASSERT_EQ(stored[key.size() + i], value[i]);
      } else {
        const uint16_t* stored = reinterpret_cast<const uint16_t*>(page.data());
        ASSERT_EQ(stored[i], F32ToF16(std::min(key[i], 65504.0f)));
        ASSERT_EQ(stored[key.size() + i], F32ToF16(value[i]));
      }
    }
  }
}

}  // namespace
}  // namespace mneme::kernels

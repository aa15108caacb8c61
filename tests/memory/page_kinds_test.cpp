// Chunks of every kind of transition through the whole of history: sealed into page groups, routed
// by the index of their representatives, spilled by a full cache through the mover into a real page
// store, read back when a query chooses them, and found again after the store was opened anew. What
// is read is the same to the last bit wherever the pages were, and the token recurrence in double
// within rounding, for gates of a router (HLA) and of a mixing matrix (MHLA).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "kernels/page_codec.h"
#include "kernels/page_read.h"
#include "memory/page_mover.h"
#include "memory/session_memory.h"
#include "tests/support/affine_history.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"
#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

using kernels::Dtype;
using kernels::kPieceTokens;
using kernels::RowForm;
using support::AffineHistory;
using support::ExpectSameBits;
using support::RandomFloats;
using support::Recurrence;
using support::RecurrenceTokens;

// docs/numerics.md: pages of every kind
double ToleranceOf(Dtype dtype) { return dtype == Dtype::kF32 ? 1e-4 : 2e-3; }

struct Shape {
  const char* name;
  int key_dim, value_dim, chunk_tokens, window_tokens;
};

// The published defaults say so by their names.
constexpr Shape kShapes[] = {
    {"NothingDivides", 19, 11, 64, 16},
    {"MhlaPaper340M", 128, 256, 64, 16},     // no window: MHLA has no router
    {"HlaPaper1B", 256, 256, 256, 16},       // released model, L 256, p 16
    {"HlaPaperAdapter", 128, 128, 256, 32},  // Qwen3.5's heads, p 32 as evaluated
    {"Chunk512", 64, 128, 512, 32},
    {"Chunk1024", 128, 64, 1024, 64},
};

struct Case {
  Recurrence recurrence;
  Shape shape;
};

// What the rows of one read chose, row after row: the list of each and its gates.
struct Choice {
  std::vector<int32_t> chunk, count;
  std::vector<float> gate;
  std::vector<const std::byte*> group;
  int32_t misses = 0;
};

class PageKindsTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int kChunks = 4, kOpenTokens = 21, kPagesMax = 3, kSlots = 2;
  static constexpr int kTail = kChunks;  // number of the open chunk

  // Tokens, router and pages of one type, and stores that hold nothing yet.
  void Make(Dtype dtype) {
    const Shape& s = GetParam().shape;
    tokens_ = MakeRecurrenceTokens(GetParam().recurrence, s.key_dim, s.value_dim,
                                   kChunks * s.chunk_tokens + kOpenTokens, /*seed=*/21);
    layout_.reader = Reader::kHla;
    layout_.linear = {.hidden = 1,
                      .key_heads = 1,
                      .value_heads = 1,
                      .key_dim = s.key_dim,
                      .value_dim = s.value_dim,
                      .chunk_tokens = s.chunk_tokens,
                      .window_tokens = s.window_tokens,
                      .pages_max = kPagesMax,
                      .transition = RuleOf(GetParam().recurrence).kind()};
    layout_.page_dtype = dtype;
    layout_.linear_layers = {0};
    layout_.paged_layers = {0};
    layout_.routed_layers = {0};
    layout_.recent_chunks = {0};
    MakeRouter();
    temp_.emplace();
    Open();
  }

  // Representatives of a chunk point where its route keys do, so gates are of all sizes.
  void MakeRouter() {
    const int64_t K = tokens_.key_dim;
    RandomFloats random(22);
    const float even = std::sqrt(3.0f / static_cast<float>(K));  // keeps a vector's length
    for (std::vector<float>* each : {&route_query_, &pool_key_, &pool_value_, &pool_output_})
      *each = random.Many(K * K, even);
    pool_ = {.key = pool_key_.data(), .value = pool_value_.data(), .output = pool_output_.data()};
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const std::vector<float> centre = random.Many(K, 2.0f);
      std::vector<float> keys = random.Many(layout_.chunk_tokens() * K);
      for (size_t i = 0; i < keys.size(); ++i) keys[i] += centre[i % centre.size()];
      route_keys_.push_back(std::move(keys));
    }
    raw_queries_ = random.Many(kPieceTokens * int64_t{layout_.linear.projected_width()}, 3.0f);
  }

  void Open() {
    auto folder = StoreFolder::Open(*temp_ / "store", support::NoMarks());
    ASSERT_TRUE(folder) << folder.error().message();
    folder_.emplace(std::move(*folder));
    auto pages = OpenPageStore(*folder_);
    ASSERT_TRUE(pages) << pages.error().message();
    pages_ = std::move(pages->store);
    const auto page = static_cast<uint64_t>(getpagesize());
    const uint64_t slot = (layout_.group_bytes() + page - 1) / page * page;
    cache_ = std::move(*PageCache::Make(
        {.group_bytes = layout_.group_bytes(),
         .bytes_max = kSlots * slot + kChunks * ClosedChunk::IndexBytes(layout_)}));
    receipts_ = 0;
    mover_ = std::make_unique<PageMover>(
        layout_, *pages_, PageMoverOptions{.readers = 2}, RealClock(), [this](SaveReceipt receipt) {
          EXPECT_TRUE(receipt.status) << receipt.status.error().message();
          receipts_ += 1;
        });
  }

  void Close() {
    chunks_.clear();
    if (mover_ != nullptr) mover_->Stop(/*drain=*/true);
    mover_.reset();
    cache_.reset();
    pages_.reset();
    folder_.reset();
  }
  void TearDown() override { Close(); }

  static ChunkKey KeyOf(int chunk) {
    ChunkKey key{};
    key[0] = static_cast<std::byte>(chunk + 1);
    return key;
  }

  // Makes all closed chunks; each is spilled before the cache is full.
  void SealAll() {
    history_.emplace(tokens_, layout_.chunk_tokens());
    history_->Run(support::Cut::kPieces, [](int, int) { return 1.0; });
    kept_.clear();
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      chunks_.push_back(NewChunk(chunk));
      Seal(history_->chunks()[static_cast<size_t>(chunk)], *chunks_.back());
      Represent(*chunks_.back(), route_keys_[static_cast<size_t>(chunk)]);
      Save(*chunks_.back());
    }
  }

  std::shared_ptr<ClosedChunk> NewChunk(int chunk) {
    return *ClosedChunk::Make(layout_, *cache_, KeyOf(chunk),
                              static_cast<uint64_t>(chunk * layout_.chunk_tokens()));
  }

  // A chunk's numbers as its page group, in the cache.
  void Seal(const AffineHistory<float>::Chunk& numbers, ClosedChunk& chunk) {
    cache_->BeginStep();
    const auto group = cache_->Take(chunk, 0, /*saved=*/false);
    ASSERT_TRUE(group) << group.error().message();
    kernels::PageGroupHeader header = kernels::MakePageGroupHeader(
        layout_.linear, layout_.page_dtype, 0, 0, chunk.first_position());
    const Status packed = kernels::cpu::PackPage({.a = numbers.a.data(),
                                                  .b = numbers.b.data(),
                                                  .a_stride = tokens_.key_dim,
                                                  .b_stride = tokens_.value_dim},
                                                 header, *group);
    ASSERT_TRUE(packed) << packed.error().message();
    std::memcpy(*group, &header, sizeof(header));
  }

  void Represent(ClosedChunk& chunk, const std::vector<float>& route_keys) {
    const float* keys = route_keys.data();
    ASSERT_TRUE(kernels::CpuKernels().represent({.shape = layout_.linear,
                                                 .pool = {&pool_, 1},
                                                 .route_key = {&keys, 1},
                                                 .first_window = 0,
                                                 .last_window = layout_.linear.representatives(),
                                                 .representatives = chunk.representatives()},
                                                *stream_));
    ASSERT_TRUE(kernels::CpuKernels().index({.shape = layout_.linear,
                                             .routed_layers = 1,
                                             .representatives = chunk.representatives(),
                                             .centroid = chunk.centroid(),
                                             .centroid_scale = chunk.centroid_scale(),
                                             .radius = chunk.radius()},
                                            *stream_));
  }

  // The store fills in the checksum of what it writes; what was never written has 0.
  std::vector<std::byte> WithoutChecksum(const std::byte* group) const {
    std::vector<std::byte> bytes(group, group + layout_.group_bytes());
    kernels::PageGroupHeader header;
    std::memcpy(&header, group, sizeof(header));
    header.checksum[0] = header.checksum[1] = 0;
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
  }

  // Writes the chunk and waits; its group is kept aside as it was sealed.
  void Save(ClosedChunk& chunk) {
    const int expected = receipts_ + 1;
    mover_->Save({.ticket = 1,
                  .node = NodeKeyFrom(chunk.key()),
                  .groups = {{GroupKeyOf(layout_, chunk, 0),
                              ByteSpan(chunk.group(0), layout_.group_bytes())}},
                  .values = {IndexValue(layout_, chunk)}});
    for (int i = 0; i < 100'000 && receipts_ < expected; ++i)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    ASSERT_EQ(receipts_, expected);
    kept_.push_back(WithoutChecksum(chunk.group(0)));
    chunk.MarkSaved();
  }

  // A process that starts later: the chunks as the store has them, no group in memory.
  void Reopen() {
    Close();
    Open();
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      chunks_.push_back(NewChunk(chunk));
      std::vector<std::byte> index(IndexValueBytes(layout_));
      ValueRead read = {IndexKeyOf(NodeKeyFrom(KeyOf(chunk))), index, {}};
      mover_->ReadValues({&read, 1});
      ASSERT_TRUE(read.status) << read.status.error().message();
      ASSERT_TRUE(TakeIndex(layout_, index, *chunks_.back()));
      chunks_.back()->MarkSaved();
    }
  }

  // What the first `rows` tokens of the open chunk choose of the closed ones.
  Choice Route(int rows, RowForm form) {
    const size_t places = static_cast<size_t>(form == RowForm::kDecode ? rows : kPieceTokens);
    std::vector<const kernels::ChunkView*> views;
    for (const auto& chunk : chunks_) views.push_back(chunk->view());
    const kernels::SessionView session = {.chunks = views.data(), .chunk_count = kChunks};
    const kernels::Piece piece = {
        .row = 0, .tokens = rows, .position = kChunks * layout_.chunk_tokens()};
    const std::vector<int32_t> position(places, piece.position);
    std::vector<int32_t> own(places, 0);
    std::fill(own.begin() + rows, own.end(), -1);
    const kernels::StepTable step = {.form = form,
                                     .rows = static_cast<int32_t>(places),
                                     .position = position.data(),
                                     .session = own.data(),
                                     .pieces = &piece,
                                     .piece_count = form == RowForm::kDecode ? 0 : 1,
                                     .sessions = &session,
                                     .session_count = 1};
    Choice choice;
    choice.chunk.resize(places * kPagesMax);
    choice.gate.resize(places * kPagesMax);
    choice.group.resize(places * kPagesMax);
    choice.count.resize(places);
    const float bias = 0.0f;
    const Status routed =
        kernels::CpuKernels().route({.step = &step,
                                     .shape = layout_.linear,
                                     .paged_layer = 0,
                                     .routed_layer = 0,
                                     .projected = raw_queries_.data(),
                                     .query_weight = route_query_.data(),
                                     .bias = &bias,
                                     .theta = 0.1f,
                                     .list = {choice.chunk.data(), choice.gate.data(),
                                              choice.group.data(), choice.count.data()},
                                     .misses = &choice.misses},
                                    *stream_);
    EXPECT_TRUE(routed) << routed.error().message();
    return choice;
  }

  // Gate of a closed chunk for a row; 0 where it is not listed.
  static float GateOf(const Choice& choice, int row, int chunk) {
    for (int32_t i = 0; i < choice.count[static_cast<size_t>(row)]; ++i) {
      const auto at = static_cast<size_t>(row * kPagesMax + i);
      if (choice.chunk[at] == chunk) return choice.gate[at];
    }
    return 0.0f;
  }

  enum class From { kKept, kStore };

  // A closed chunk's group: as it lay in memory when it was sealed, or as the cache has it, which
  // asks the store for what it dropped.
  const std::byte* GroupOf(int chunk, From from) {
    if (from == From::kKept) return kept_[static_cast<size_t>(chunk)].data();
    cache_->BeginStep();
    ClosedChunk& own = *chunks_[static_cast<size_t>(chunk)];
    const Status held = HoldGroup(*cache_, own, 0, mover_.get());
    EXPECT_TRUE(held) << held.error().message();
    EXPECT_EQ(WithoutChecksum(own.group(0)), kept_[static_cast<size_t>(chunk)]) << chunk;
    return own.group(0);
  }

  // y [rows, V] of the first tokens of the open chunk: the open chunk's part, then pages newest to
  // oldest, each row alone or all that read a page together.
  std::vector<float> Read(const Choice& choice, int rows, RowForm form, From from) {
    const int K = tokens_.key_dim, V = tokens_.value_dim;
    auto open = history_->NewChunk();
    std::vector<float> carry(static_cast<size_t>(rows * K)), y(static_cast<size_t>(rows * V));
    const Status appended = kernels::cpu::AppendPiece<float>(
        {history_->shape(), rows, history_->TokensFrom(kChunks * layout_.chunk_tokens()),
         open.view(), carry.data(), y.data(), &history_->workspace()});
    EXPECT_TRUE(appended) << appended.error().message();
    std::vector<float> scratch(kernels::PageReadScratch(K, V));
    for (int chunk = kChunks - 1; chunk >= 0; --chunk) {
      std::vector<int32_t> row;
      std::vector<float> gate, square;
      for (int i = 0; i < rows; ++i) {
        if (GateOf(choice, i, chunk) == 0.0f) continue;
        row.push_back(i);
        gate.push_back(GateOf(choice, i, chunk));
        square.push_back(0.0f);
      }
      if (row.empty()) continue;
      const std::byte* group = GroupOf(chunk, from);
      const auto header = kernels::ReadPageGroupHeader(group, layout_.linear);
      EXPECT_TRUE(header) << header.error().message();
      const kernels::PageReadArgs args = {.page = kernels::PageOf(group, *header, 0),
                                          .key_dim = K,
                                          .value_dim = V,
                                          .count = static_cast<int>(row.size()),
                                          .row = row.data(),
                                          .gate = gate.data(),
                                          .carry = carry.data(),
                                          .output = y.data(),
                                          .square = square.data(),
                                          .scratch = scratch.data()};
      form == RowForm::kDecode ? kernels::cpu::ReadPage(args)
                               : kernels::cpu::ReadPageTogether(args);
    }
    return y;
  }

  // Row `row` of a read against the recurrence, relative to the largest number expected.
  void ExpectRecurrence(const std::vector<float>& y, int row, const support::ChunkGate& gate) {
    const int position = kChunks * layout_.chunk_tokens() + row, V = tokens_.value_dim;
    const std::vector<double> expected =
        GatedReadOf(tokens_, layout_.chunk_tokens(), position, gate);
    double scale = 1e-3;
    for (const double each : expected) scale = std::max(scale, std::abs(each));
    for (int d = 0; d < V; ++d) {
      ASSERT_NEAR(static_cast<double>(y[static_cast<size_t>(row * V + d)]),
                  expected[static_cast<size_t>(d)], ToleranceOf(layout_.page_dtype) * scale)
          << "row " << row << ", number " << d;
    }
  }

  // A page keeps what its kind needs and no more, on disk too.
  void ExpectNumbersOfTheKind() {
    const auto K = static_cast<size_t>(tokens_.key_dim), V = static_cast<size_t>(tokens_.value_dim);
    const std::vector<size_t> a_bytes = {2 * K * K, 0, 4, 4 * K};  // by kernels::TransitionKind
    const size_t bytes = sizeof(kernels::PageGroupHeader) + 2 * K * V +
                         a_bytes[static_cast<size_t>(layout_.linear.transition)];
    std::vector<std::byte> value(bytes);
    const auto read = pages_->Read(GroupKeyOf(layout_, *chunks_[0], 0), value);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, bytes);
    EXPECT_EQ(WithoutChecksum(value.data()), kept_[0]);
  }

  // S [K, V] that a mixing matrix's reader keeps: all closed chunks with gates of their own.
  static float MixingOf(int chunk) { return 1.0f / (1.5f + static_cast<float>(chunk)); }
  std::vector<float> Mix(From from) {
    std::vector<float> state(static_cast<size_t>(tokens_.key_dim * tokens_.value_dim), 0.0f);
    float* states[] = {state.data()};
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const std::byte* groups[] = {GroupOf(chunk, from)};
      const kernels::ChunkView view = {.groups = groups};
      const float gate = MixingOf(chunk);
      const Status folded = kernels::CpuKernels().fold_pages(
          {.shape = layout_.linear, .chunk = &view, .gate = {&gate, 1}, .state = states}, *stream_);
      EXPECT_TRUE(folded) << folded.error().message();
    }
    return state;
  }

  RecurrenceTokens tokens_;
  MemoryLayout layout_;
  std::vector<float> route_query_, pool_key_, pool_value_, pool_output_, raw_queries_;
  std::vector<std::vector<float>> route_keys_;
  kernels::PoolWeights pool_;
  std::unique_ptr<kernels::Stream> stream_ = std::move(*kernels::CpuKernels().make_stream(1));
  std::optional<AffineHistory<float>> history_;

  std::optional<support::TempFolder> temp_;
  std::optional<StoreFolder> folder_;
  std::unique_ptr<PageStore> pages_;
  std::unique_ptr<PageCache> cache_;
  std::atomic<int> receipts_ = 0;
  std::unique_ptr<PageMover> mover_;
  std::vector<std::shared_ptr<ClosedChunk>> chunks_;
  std::vector<std::vector<std::byte>> kept_;
};

TEST_P(PageKindsTest, RoutedReadsAreTheSameFromMemoryFromDiskAndAfterAReopen) {
  Make(Dtype::kF16);
  SealAll();
  EXPECT_EQ(cache_->dropped_groups(), kChunks - kSlots) << "the cap must have spilled some";
  ExpectNumbersOfTheKind();
  for (const RowForm form : {RowForm::kDecode, RowForm::kPrefill}) {
    const int rows = form == RowForm::kDecode ? 2 : kOpenTokens;
    const Choice choice = Route(rows, form);
    const std::vector<float> y = Read(choice, rows, form, From::kKept);
    ExpectSameBits(Read(choice, rows, form, From::kStore), y);
    for (const int row : {0, rows - 1}) {
      ExpectRecurrence(y, row, [&](int, int chunk) {
        return chunk == kTail ? 1.0 : static_cast<double>(GateOf(choice, row, chunk));
      });
    }
  }
  const Choice before = Route(kOpenTokens, RowForm::kPrefill);
  const auto [least, most] =
      std::minmax_element(before.count.begin(), before.count.begin() + kOpenTokens);
  EXPECT_LT(*least, *most) << "a router that chooses alike for all shows little";
  const std::vector<float> y = Read(before, kOpenTokens, RowForm::kPrefill, From::kKept);
  EXPECT_GT(pages_->counters().reads, 0u);
  Reopen();
  const Choice after = Route(kOpenTokens, RowForm::kPrefill);
  EXPECT_EQ(after.count, before.count);
  EXPECT_EQ(after.chunk, before.chunk);
  ExpectSameBits(after.gate, before.gate);
  ExpectSameBits(Read(after, kOpenTokens, RowForm::kPrefill, From::kStore), y);
}

TEST_P(PageKindsTest, MixedReadsAreTheSameFromMemoryFromDiskAndAfterAReopen) {
  Make(Dtype::kF32);
  SealAll();
  const std::vector<float> state = Mix(From::kKept);
  ExpectSameBits(Mix(From::kStore), state);
  Reopen();
  ExpectSameBits(Mix(From::kStore), state);
  // What the first token of the open chunk reads, whose own gate is the matrix's diagonal:
  // u q B + ((1 - u) q + u q A) S.
  constexpr float kOwn = 0.625f;
  const int K = tokens_.key_dim, V = tokens_.value_dim;
  const int position = kChunks * layout_.chunk_tokens();
  auto open = history_->NewChunk();
  ASSERT_TRUE(kernels::cpu::StepToken<float>(
      {history_->shape(), history_->TokensFrom(position), open.view(), &history_->workspace()}));
  std::vector<float> carry(tokens_.q.begin() + position * K,
                           tokens_.q.begin() + (position + 1) * K);
  std::vector<float> y(static_cast<size_t>(V), 0.0f);
  ASSERT_TRUE(kernels::cpu::ReadChunk<float>(
      {history_->shape(), open.view(), 1, &kOwn, carry.data(), y.data(), &history_->workspace()}));
  const kernels::AffineShape identity = {kernels::kLinearRule, K, V};
  ASSERT_TRUE(kernels::cpu::ReadChunk<float>({identity,
                                              {nullptr, state.data()},
                                              1,
                                              nullptr,
                                              carry.data(),
                                              y.data(),
                                              &history_->workspace()}));
  ExpectRecurrence(y, 0, [&](int, int chunk) {
    return static_cast<double>(chunk == kTail ? kOwn : MixingOf(chunk));
  });
}

// Gates 1 are the native reader's; two neighbours as one chunk then read as the two.
class MergedPageKindsTest : public PageKindsTest {};

TEST_P(MergedPageKindsTest, PagesOfMergedChunksReadAsTheTwoApart) {
  Make(Dtype::kF32);
  SealAll();
  Choice apart = {.chunk = {3, 2, 1}, .count = {3}, .gate = {1.0f, 1.0f, 1.0f}, .group = {}};
  const auto open_gates = [](int, int chunk) { return chunk == 0 ? 0.0 : 1.0; };
  const std::vector<float> y = Read(apart, 1, RowForm::kDecode, From::kStore);
  ExpectRecurrence(y, 0, open_gates);
  // Chunks 1 and 2 as one, under the node of chunk 2; chunk 1 is then not read.
  auto& numbers = history_->chunks();
  ASSERT_TRUE(
      kernels::cpu::MergeChunks<float>({history_->shape(), numbers[1].view(), numbers[2].view(),
                                        numbers[2].view(), &history_->workspace()}));
  cache_->BeginStep();
  chunks_[2] = *ClosedChunk::Make(layout_, *cache_, KeyOf(77), chunks_[1]->first_position());
  Seal(numbers[2], *chunks_[2]);
  Save(*chunks_[2]);
  std::swap(kept_[2], kept_.back());
  apart = {.chunk = {3, 2, -1}, .count = {2}, .gate = {1.0f, 1.0f, 0.0f}, .group = {}};
  ExpectRecurrence(Read(apart, 1, RowForm::kDecode, From::kStore), 0, open_gates);
}

std::vector<Case> CasesOf(std::span<const Shape> shapes) {
  std::vector<Case> cases;
  for (const Recurrence each :
       {Recurrence::kLinear, Recurrence::kRetNet, Recurrence::kGla, Recurrence::kMamba2,
        Recurrence::kDeltaNet, Recurrence::kGdn, Recurrence::kKda}) {
    for (const Shape& shape : shapes) cases.push_back({each, shape});
  }
  return cases;
}

std::string NameOfCase(const ::testing::TestParamInfo<Case>& info) {
  return std::string(NameOf(info.param.recurrence)) + "_" + info.param.shape.name;
}

INSTANTIATE_TEST_SUITE_P(Of, PageKindsTest, ::testing::ValuesIn(CasesOf(kShapes)), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Of, MergedPageKindsTest, ::testing::ValuesIn(CasesOf({kShapes, 1})),
                         NameOfCase);

}  // namespace
}  // namespace mneme::memory

// The list that route makes against scores, gates, threshold and cap written out in double, and
// against itself without the first level of the index, which may never change it.
#include "kernels/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/gdn.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels {
namespace {

using support::RandomFloats;

size_t Size(int64_t value) { return static_cast<size_t>(value); }

struct Entry {
  int chunk;
  double gate;
};

// A session with closed chunks and random representatives in clusters, so that some chunks are far
// from any query, and the rows of one step.
class RouteCase {
 public:
  RouteCase(const LinearShape& shape, int chunks, int rows, RowForm form, uint64_t seed = 51)
      : shape_(shape), rows_(rows), form_(form) {
    RandomFloats random(seed);
    const int G = shape.key_heads, K = shape.key_dim, P = shape.representatives();
    query_weight_ = random.Many(G * K * K, 1.5f / std::sqrt(static_cast<float>(K)));
    bias_ = random.Many(G);
    const int row_places = form == RowForm::kDecode ? rows : kPieceTokens;
    projected_ = random.Many(row_places * shape.projected_width(), 3.0f);
    chunks_.resize(Size(chunks));
    for (Chunk& made : chunks_) {
      const std::vector<float> centre = random.Many(2 * G * K, 3.0f);
      for (int i = 0; i < 2 * G * P * K; ++i)
        made.representatives.push_back(
            F32ToF16(centre[Size(i / (P * K) * K + i % K)] + random.Next(0.5f)));
      made.centroid.resize(Size(2 * G * K));
      made.scale.resize(Size(2 * G));
      made.radius.resize(Size(2 * G));
      for (int i = 0; i < 3 * G; ++i) made.groups.push_back(&made.byte);
      cpu::CpuStream stream(1);
      IndexArgs index;
      index.shape = shape;
      index.routed_layers = 2;
      index.representatives = made.representatives.data();
      index.centroid = made.centroid.data();
      index.centroid_scale = made.scale.data();
      index.radius = made.radius.data();
      EXPECT_TRUE(cpu::Index(index, stream));
    }
    Repeat();
  }

  // Chunk `to` gets the representatives of `from`: equal scores.
  void CopyChunk(int from, int to) {
    chunks_[Size(to)] = chunks_[Size(from)];
    Repeat();
  }

  void Forget(int index) {
    std::fill(chunks_[Size(index)].groups.begin(), chunks_[Size(index)].groups.end(), nullptr);
  }

  void HideBehindBound(int index) {
    Chunk& hidden = chunks_[Size(index)];
    for (size_t i = 0; i < hidden.representatives.size(); ++i) {
      const bool odd = i / Size(shape_.key_dim) % 2 == 1;
      hidden.representatives[i] = F32ToF16(odd ? -1000.0f : 1000.0f);
    }
    std::fill(hidden.scale.begin(), hidden.scale.end(), 0.0f);
    std::fill(hidden.radius.begin(), hidden.radius.end(), 0.0f);
  }

  void SetBias(float bias) { std::fill(bias_.begin(), bias_.end(), bias); }

  // Routes in layer 1 of 2 routed and 2 of 3 paged ones.
  void Run(int threads = 1) {
    const int G = shape_.key_heads, M = shape_.pages_max;
    const bool decode = form_ == RowForm::kDecode;
    const int row_places = decode ? rows_ : kPieceTokens;
    cpu::CpuStream stream(threads);
    chunk.assign(Size(row_places * G * M), -7);
    gate.assign(chunk.size(), -7.0f);
    group.assign(chunk.size(), nullptr);
    count.assign(Size(row_places * G), -7);
    std::vector<int32_t> session(Size(row_places), 0), position(Size(row_places), 0);
    const int32_t at = static_cast<int32_t>(chunks_.size()) * shape_.chunk_tokens;
    const Piece piece = {.row = 0, .tokens = decode ? 1 : rows_, .position = at};
    SessionView view;
    view.chunks = views_.data();
    view.chunk_count = static_cast<int32_t>(views_.size());
    StepTable step;
    step.form = form_;
    step.rows = row_places;
    step.session = session.data();
    step.position = position.data();
    step.pieces = &piece;
    step.piece_count = decode ? 0 : 1;
    step.sessions = &view;
    step.session_count = 1;
    RouteArgs args;
    args.step = &step;
    args.shape = shape_;
    args.paged_layer = 2;
    args.routed_layer = routed ? 1 : -1;
    args.projected = projected_.data();
    args.query_weight = query_weight_.data();
    args.bias = bias_.data();
    args.theta = theta;
    args.recent_chunks = recent;
    args.list = {chunk.data(), gate.data(), group.data(), count.data()};
    args.misses = &misses;
    const Status status = cpu::Route(args, stream);
    ASSERT_TRUE(status) << status.error().message();
  }

  // Scores of one row and key head by chunk, in double.
  std::vector<double> Gates(int row, int g) const {
    const int K = shape_.key_dim, P = shape_.representatives();
    std::vector<double> query(Size(K), 0.0), gates;
    for (int o = 0; o < K; ++o) {
      for (int d = 0; d < K; ++d)
        query[Size(o)] +=
            static_cast<double>(query_weight_[Size((g * K + o) * K + d)]) *
            static_cast<double>(projected_[Size(row * shape_.projected_width() + g * K + d)]);
    }
    for (const Chunk& each : chunks_) {
      double sum = 0.0;
      for (int b = 0; b < P; ++b) {
        double score = 0.0;
        for (int d = 0; d < K; ++d)
          score += query[Size(d)] *
                   static_cast<double>(F16ToF32(
                       each.representatives[Size(((shape_.key_heads + g) * P + b) * K + d)]));
        sum += std::exp(score / std::sqrt(K));
      }
      const double s = std::log(sum / P) + static_cast<double>(bias_[Size(g)]);
      gates.push_back(1.0 / (1.0 + std::exp(-s)));
    }
    return gates;
  }

  // What the list should be.
  std::vector<Entry> Expected(int row, int g) const {
    std::vector<double> gates = routed ? Gates(row, g) : std::vector<double>(chunks_.size(), 0.0);
    std::vector<Entry> entries;
    const int last = static_cast<int>(gates.size()) - 1;
    for (int j = last; j >= 0; --j) {
      const double w = j > last - recent ? 1.0 : gates[Size(j)];
      if (w > 0.0 && w >= static_cast<double>(theta)) entries.push_back({j, w});
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.gate > b.gate; });
    if (static_cast<int>(entries.size()) > shape_.pages_max) entries.resize(Size(shape_.pages_max));
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.chunk > b.chunk; });
    return entries;
  }

  void ExpectTheList() const {
    for (int row = 0; row < rows_; ++row) {
      for (int g = 0; g < shape_.key_heads; ++g) {
        SCOPED_TRACE(::testing::Message() << "row " << row << " key head " << g);
        const std::vector<Entry> expected = Expected(row, g);
        const int list = row * shape_.key_heads + g;
        ASSERT_EQ(count[Size(list)], static_cast<int>(expected.size()));
        for (size_t i = 0; i < expected.size(); ++i) {
          const size_t at = Size(list * shape_.pages_max) + i;
          ASSERT_EQ(chunk[at], expected[i].chunk);
          ASSERT_NEAR(static_cast<double>(gate[at]), expected[i].gate, 1e-4);
        }
      }
    }
  }

  RouteHeadArgs HeadArgs(int g, std::vector<float>& scratch) {
    RouteHeadArgs args;
    args.shape = shape_;
    args.routed_layer = 1;
    args.key_head = g;
    args.query_weight = &query_weight_[Size(g * shape_.key_dim * shape_.key_dim)];
    args.bias = bias_[Size(g)];
    args.theta = theta;
    args.chunks = views_.data();
    args.chunk_count = static_cast<int32_t>(views_.size());
    args.rows = rows_;
    args.query = &projected_[Size(g * shape_.key_dim)];
    args.query_stride = shape_.projected_width();
    args.list_stride = shape_.pages_max;
    args.count_stride = 1;
    scratch.resize(RouteScratch(shape_));
    args.scratch = scratch.data();
    return args;
  }

  float theta = 0.1f;
  int recent = 0;
  bool routed = true;
  int32_t misses = -1;
  std::vector<int32_t> chunk, count;
  std::vector<float> gate;
  std::vector<const std::byte*> group;

 private:
  struct Chunk {
    std::vector<uint16_t> representatives;
    std::vector<int8_t> centroid;
    std::vector<float> scale, radius;
    std::vector<const std::byte*> groups;
    std::byte byte{};
    ChunkView view;
  };

  void Repeat() {
    views_.clear();
    for (Chunk& each : chunks_) {
      each.view.groups = each.groups.data();
      each.view.representatives = each.representatives.data();
      each.view.centroid = each.centroid.data();
      each.view.centroid_scale = each.scale.data();
      each.view.radius = each.radius.data();
      views_.push_back(&each.view);
    }
  }

  LinearShape shape_;
  int rows_;
  RowForm form_;
  std::vector<float> query_weight_, bias_, projected_;
  std::vector<Chunk> chunks_;
  std::vector<const ChunkView*> views_;
};

LinearShape Shape(int g, int k, int chunk, int window, int pages) {
  return {.key_heads = g,
          .value_heads = g,
          .key_dim = k,
          .value_dim = 8,
          .chunk_tokens = chunk,
          .window_tokens = window,
          .pages_max = pages};
}

struct RouteParam {
  LinearShape shape;
  RowForm form;
  int rows;
};

class RouteTest : public ::testing::TestWithParam<RouteParam> {
 protected:
  RouteCase Make(int chunks) const {
    return RouteCase(GetParam().shape, chunks, GetParam().rows, GetParam().form);
  }
};

TEST_P(RouteTest, EqualsTheDefinition) {
  RouteCase c = Make(23);
  c.Run();
  c.ExpectTheList();
}

TEST_P(RouteTest, RecentChunksAreReadWithGateOneAndCount) {
  for (const int recent : {1, 2, 100}) {
    RouteCase c = Make(12);
    c.recent = recent;
    c.Run();
    c.ExpectTheList();
    EXPECT_EQ(c.gate[0], 1.0f);
    EXPECT_EQ(c.chunk[0], 11);
  }
}

TEST_P(RouteTest, WithoutARouterOnlyRecentChunksAreRead) {
  RouteCase c = Make(5);
  c.routed = false;
  c.recent = 2;
  c.Run();
  c.ExpectTheList();
  EXPECT_EQ(c.count[0], std::min(2, GetParam().shape.pages_max));
}

TEST_P(RouteTest, AThetaOfZeroKeepsTheLargest) {
  RouteCase c = Make(30);
  c.theta = 0.0f;
  c.Run();
  c.ExpectTheList();
  EXPECT_EQ(c.count[0], GetParam().shape.pages_max);
}

TEST_P(RouteTest, TiesGoToTheNewerChunk) {
  RouteCase c = Make(10);
  c.theta = 0.0f;
  for (int j = 1; j < 10; ++j) c.CopyChunk(0, j);
  c.Run();
  for (int i = 0; i < c.count[0]; ++i) EXPECT_EQ(c.chunk[Size(i)], 9 - i);
}

TEST_P(RouteTest, ReadsNoRepresentativesThatTheBoundExcludes) {
  RouteCase c = Make(12);
  c.HideBehindBound(4);  // its bound is 0, its representatives would open every gate
  c.SetBias(-6.0f);
  c.Run();
  for (size_t list = 0; list < Size(GetParam().rows * GetParam().shape.key_heads); ++list) {
    for (int i = 0; i < c.count[list]; ++i) {
      const size_t at = list * Size(GetParam().shape.pages_max) + Size(i);
      EXPECT_NE(c.chunk[at], 4);
    }
  }
}

TEST_P(RouteTest, WithoutClosedChunksListsAreEmpty) {
  RouteCase c = Make(0);
  c.recent = 1;
  c.Run();
  c.ExpectTheList();
  EXPECT_EQ(c.misses, 0);
}

TEST_P(RouteTest, AGroupThatIsNotInMemoryIsAMissAndStaysListed) {
  RouteCase c = Make(6);
  c.recent = 2;
  c.Forget(5);
  c.Run();
  c.ExpectTheList();
  EXPECT_EQ(c.group[0], nullptr);
  EXPECT_EQ(c.misses, GetParam().rows * GetParam().shape.key_heads);
}

TEST_P(RouteTest, RowsOfPaddingHaveNoEntriesAndThreadsChangeNothing) {
  RouteCase one = Make(9), two = Make(9);
  one.Run(1);
  two.Run(2);
  EXPECT_EQ(one.chunk, two.chunk);
  EXPECT_EQ(one.count, two.count);
  support::ExpectSameBits(one.gate, two.gate);
  for (size_t i = Size(GetParam().rows * GetParam().shape.key_heads); i < one.count.size(); ++i)
    ASSERT_EQ(one.count[i], 0);
}

TEST_P(RouteTest, TheFirstLevelNeverChangesTheList) {
  const LinearShape& shape = GetParam().shape;
  int open = 0, all = 0;
  for (uint64_t seed = 60; seed < 66; ++seed) {
    for (const float theta : {0.02f, 0.1f, 0.5f, 0.9f}) {
      RouteCase c(shape, 40, GetParam().rows, GetParam().form, seed);
      c.theta = theta;
      std::vector<float> scratch;
      RouteHeadArgs args = c.HeadArgs(0, scratch);
      std::vector<int32_t> chunk[2], count[2];
      std::vector<float> gate[2];
      for (const int use : {0, 1}) {
        chunk[use].assign(Size(GetParam().rows * shape.pages_max), -1);
        gate[use].assign(chunk[use].size(), -1.0f);
        count[use].assign(Size(GetParam().rows), -1);
        args.use_index = use == 1;
        args.chunk = chunk[use].data();
        args.gate = gate[use].data();
        args.count = count[use].data();
        GetParam().form == RowForm::kDecode ? cpu::RouteRow(args) : cpu::RoutePiece(args);
      }
      ASSERT_EQ(chunk[0], chunk[1]);
      ASSERT_EQ(count[0], count[1]);
      support::ExpectSameBits(gate[0], gate[1]);
      for (const double w : c.Gates(0, 0)) open += w >= static_cast<double>(theta) ? 1 : 0;
      all += 40;
    }
  }
  // The case has both kinds, or it would show nothing.
  EXPECT_GT(open, all / 20);
  EXPECT_LT(open, all * 19 / 20);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RouteTest,
    ::testing::Values(RouteParam{Shape(1, 1, 64, 64, 3), RowForm::kDecode, 1},
                      RouteParam{Shape(2, 128, 256, 16, 16), RowForm::kDecode, 1},
                      RouteParam{Shape(2, 18, 192, 24, 3), RowForm::kDecode, 1},
                      RouteParam{Shape(1, 2, 64, 1, 4), RowForm::kPrefill, 64},
                      RouteParam{Shape(2, 128, 256, 16, 16), RowForm::kPrefill, 64},
                      RouteParam{Shape(2, 18, 192, 24, 3), RowForm::kPrefill, 23}));

// Published key widths, windows of 16 (HLA-1.3B), 32 and 64, chunks from 256 to 1,024 tokens.
INSTANTIATE_TEST_SUITE_P(
    Published, RouteTest,
    ::testing::Values(RouteParam{Shape(1, 256, 256, 16, 16), RowForm::kPrefill, 64},
                      RouteParam{Shape(2, 64, 512, 32, 4), RowForm::kDecode, 1},
                      RouteParam{Shape(1, 128, 1024, 64, 4), RowForm::kPrefill, 40}));

}  // namespace
}  // namespace mneme::kernels

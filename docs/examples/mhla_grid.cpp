// MHLA over a grid of your own, beside the sum over all pairs of tokens.
//
//   mhla_grid [D H W BD BH BW HEADS K V]     sizes of the grid, of a block, of a head
//
//   mhla_grid 1 14 14 1 7 7 2 32 48     an image in 2 x 2 blocks; without arguments, too
//   mhla_grid 5 6 8 2 3 4 1 24 16       a video whose last blocks are smaller
//
// The mixing matrix is what the released layers of image classes begin with; the normaliser is on.
// Prints the largest difference, relative to the largest output, and exits with 1 where it is above
// 1e-10.
#include "kernels/mhla_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"

using mneme::Status;
using mneme::kernels::GridNormalizer;
using mneme::kernels::MhlaGridArgs;
using mneme::kernels::MhlaGridShape;
using mneme::kernels::MhlaGridWorkspace;
using mneme::kernels::MixingStart;
using mneme::kernels::TokenGrid;

namespace {

using Numbers = std::vector<double>;

struct Inputs {
  MhlaGridShape shape;
  Numbers q, k, v;  // [T, heads, K], [T, heads, K], [T, heads, V]; q and k are features already
  Numbers mixing;   // [L, L]
};

Status MakeInputs(const MhlaGridShape& shape, Inputs& in) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  const auto many = [&](int width) {
    Numbers x(static_cast<size_t>(shape.grid.tokens() * shape.heads * width));
    for (double& each : x) each = uniform(random);
    return x;
  };
  in.shape = shape;
  in.q = many(shape.key_dim);
  in.k = many(shape.key_dim);
  in.v = many(shape.value_dim);
  for (Numbers* each : {&in.q, &in.k})
    mneme::kernels::MapFeatures<double>(*each, 1e-6, each->data());
  in.mixing.resize(static_cast<size_t>(shape.grid.blocks() * shape.grid.blocks()));
  // A learned matrix instead: ClipMixing holds it in [0, 1].
  return mneme::kernels::StartMixing<double>(shape.grid, {.start = MixingStart::kCos}, in.mixing);
}

Status ByBlocks(const Inputs& in, Numbers& out) {
  auto stream = mneme::kernels::CpuKernels().make_stream(/*threads=*/2);
  MNEME_TRY(stream);
  out.resize(in.v.size());
  MhlaGridWorkspace<double> workspace(in.shape);
  MhlaGridArgs<double> args{.shape = in.shape, .q = in.q.data(), .k = in.k.data()};
  args.v = in.v.data();
  args.mixing = in.mixing.data();
  args.normalizer = GridNormalizer::kOfQuery;  // kNone: q S alone; kOfPlace: the released layers'
  args.epsilon = 1e-6;
  args.out = out.data();  // [T, heads, V]
  args.workspace = &workspace;
  return mneme::kernels::cpu::MhlaGrid(args, **stream);
}

// Which block a token lies in, last axis innermost.
int64_t BlockOf(const TokenGrid& grid, int64_t token) {
  const int64_t at[] = {token / (int64_t{grid.size[1]} * grid.size[2]),
                        token / grid.size[2] % grid.size[1], token % grid.size[2]};
  int64_t block = 0;
  for (int axis = 0; axis < 3; ++axis) {
    block = block * grid.blocks_along(axis) + at[axis] / grid.block[static_cast<size_t>(axis)];
  }
  return block;
}

// o_t = sum_u m (q_t . k_u) v_u / (sum_u m (q_t . k_u) + epsilon), m of the blocks of t and u.
Numbers ByPairs(const Inputs& in, int64_t t, int head) {
  const int K = in.shape.key_dim, V = in.shape.value_dim;
  const auto row = [&](const Numbers& x, int64_t token, int width) {
    return x.data() + (token * in.shape.heads + head) * width;
  };
  Numbers out(static_cast<size_t>(V));
  double norm = 1e-6;
  for (int64_t u = 0; u < in.shape.grid.tokens(); ++u) {
    double weight = 0;
    for (int i = 0; i < K; ++i) weight += row(in.q, t, K)[i] * row(in.k, u, K)[i];
    weight *= in.mixing[static_cast<size_t>(BlockOf(in.shape.grid, t) * in.shape.grid.blocks() +
                                            BlockOf(in.shape.grid, u))];
    norm += weight;
    for (int d = 0; d < V; ++d) out[static_cast<size_t>(d)] += weight * row(in.v, u, V)[d];
  }
  for (double& each : out) each /= norm;
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> sizes = {1, 14, 14, 1, 7, 7, 2, 32, 48};
  if (argc != 1 && argc != 10) {
    fmt::print(stderr, "mhla_grid: 9 sizes, D H W BD BH BW HEADS K V, or none\n");
    return 2;
  }
  for (int i = 1; i < argc; ++i) sizes[static_cast<size_t>(i - 1)] = std::atoi(argv[i]);
  const MhlaGridShape shape{{{sizes[0], sizes[1], sizes[2]}, {sizes[3], sizes[4], sizes[5]}},
                            sizes[6],
                            sizes[7],
                            sizes[8]};
  Inputs in;
  Numbers out;
  Status status = mneme::kernels::Validate(shape.grid);
  if (status) status = MakeInputs(shape, in);
  if (status) status = ByBlocks(in, out);
  if (!status) {
    fmt::print(stderr, "mhla_grid: {}\n", status.error().message());
    return 1;
  }
  double largest = 0, difference = 0;
  for (int64_t t = 0; t < shape.grid.tokens(); ++t) {
    for (int head = 0; head < shape.heads; ++head) {
      const Numbers expected = ByPairs(in, t, head);
      const double* actual = out.data() + (t * shape.heads + head) * shape.value_dim;
      for (size_t d = 0; d < expected.size(); ++d) {
        largest = std::max(largest, std::abs(expected[d]));
        difference = std::max(difference, std::abs(actual[d] - expected[d]));
      }
    }
  }
  fmt::print("{} tokens in {} blocks, {} heads of {} x {}: difference {:.1e}\n",
             shape.grid.tokens(), shape.grid.blocks(), shape.heads, shape.key_dim, shape.value_dim,
             difference / largest);
  return difference <= 1e-10 * largest ? 0 : 1;
}

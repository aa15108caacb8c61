#include "kernels/mhla_grid.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/args.h"
#include "kernels/gdn.h"

namespace mneme::kernels {
namespace {

constexpr std::string_view kOp = "mhla grid";

// Numbers of `sum` for the heads that are worked on together: they should stay in the cache.
constexpr int64_t kHeadsNumbers = int64_t{1} << 20;

Status CheckShape(const MhlaGridShape& shape) {
  MNEME_TRY(Validate(shape.grid));
  MNEME_TRY(RequirePositive(
      kOp, {{"heads", shape.heads}, {"key dim", shape.key_dim}, {"value dim", shape.value_dim}}));
  if (shape.key_dim > kHeadDimMax || shape.value_dim > kHeadDimMax)
    return Fail(ErrorCode::kInvalidArgument, "{}: a head of {} x {}, at most {}", kOp,
                shape.key_dim, shape.value_dim, kHeadDimMax);
  const int64_t numbers = shape.grid.blocks() * shape.key_dim * shape.value_dim;
  if (numbers > kGridNumbersMax)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: {} blocks of {} x {} are {} numbers a head, at most {}: take larger blocks",
                kOp, shape.grid.blocks(), shape.key_dim, shape.value_dim, numbers, kGridNumbersMax);
  return {};
}

// Where in the grid of blocks a block lies.
std::array<int, kGridAxes> PlaceOf(const TokenGrid& grid, int block) {
  std::array<int, kGridAxes> place;
  for (int axis = kGridAxes - 1; axis >= 0; --axis) {
    const int along = grid.blocks_along(axis);
    place[static_cast<size_t>(axis)] = block % along;
    block /= along;
  }
  return place;
}

double DistanceOf(const TokenGrid& grid, int one, int other) {
  const auto a = PlaceOf(grid, one), b = PlaceOf(grid, other);
  double squares = 0;
  for (size_t axis = 0; axis < kGridAxes; ++axis)
    squares += static_cast<double>((a[axis] - b[axis]) * (a[axis] - b[axis]));
  return std::sqrt(squares);
}

double WeightOf(const MixingStartOptions& options, double distance, double largest) {
  const double part = largest == 0 ? 0 : distance / largest;
  switch (options.start) {
    case MixingStart::kLinear:
      return 1 - part;
    case MixingStart::kCos:
      return std::cos(std::numbers::pi / 4 * part);
    case MixingStart::kExp:
      return std::exp(-distance / options.exp_reach);
    case MixingStart::kGaussian:
      return std::exp(-part * part * 9 / 2);
    case MixingStart::kLocal:
      return distance <= options.local_reach ? 1 : 0;
  }
  return 0;
}

}  // namespace

int TokenGrid::blocks_along(int axis) const {
  const auto at = static_cast<size_t>(axis);
  return size[at] / block[at] + (size[at] % block[at] != 0 ? 1 : 0);
}

int64_t TokenGrid::blocks() const {
  return int64_t{blocks_along(0)} * blocks_along(1) * blocks_along(2);
}

bool TokenGrid::even() const {
  for (size_t axis = 0; axis < kGridAxes; ++axis) {
    if (size[axis] > block[axis] && size[axis] % block[axis] != 0) return false;
  }
  return true;
}

Status Validate(const TokenGrid& grid) {
  for (size_t axis = 0; axis < kGridAxes; ++axis) {
    if (grid.size[axis] < 1 || grid.size[axis] > kGridTokensMax || grid.block[axis] < 1)
      return Fail(ErrorCode::kInvalidArgument,
                  "token grid: axis {}: {} tokens in blocks of {}, expected 1 to {} in blocks of "
                  "at least 1",
                  axis, grid.size[axis], grid.block[axis], kGridTokensMax);
  }
  // Stepwise, so that no product overflows.
  if (int64_t{grid.size[0]} * grid.size[1] > kGridTokensMax || grid.tokens() > kGridTokensMax)
    return Fail(ErrorCode::kInvalidArgument, "token grid: {} x {} x {} tokens, at most {}",
                grid.size[0], grid.size[1], grid.size[2], kGridTokensMax);
  if (grid.blocks() > kGridBlocksMax)
    return Fail(ErrorCode::kInvalidArgument, "token grid: {} blocks, at most {}", grid.blocks(),
                kGridBlocksMax);
  return {};
}

template <typename Real>
Status StartMixing(const TokenGrid& grid, const MixingStartOptions& options,
                   std::span<Real> mixing) {
  MNEME_TRY(Validate(grid));
  const int blocks = static_cast<int>(grid.blocks());
  if (static_cast<int64_t>(mixing.size()) != int64_t{blocks} * blocks)
    return Fail(ErrorCode::kInvalidArgument, "start mixing: {} numbers for {} x {} blocks",
                mixing.size(), blocks, blocks);
  if (options.start > MixingStart::kLocal)
    return Fail(ErrorCode::kInvalidArgument, "start mixing: start is {}, expected 0 to {}",
                static_cast<int>(options.start), static_cast<int>(MixingStart::kLocal));
  // Written so that NaN is refused too.
  if (!(options.exp_reach > 0) || !(options.local_reach >= 0))
    return Fail(ErrorCode::kInvalidArgument,
                "start mixing: exp_reach is {}, local_reach is {}, expected above 0 and at least 0",
                options.exp_reach, options.local_reach);
  const double largest = DistanceOf(grid, 0, blocks - 1);
  std::vector<double> column(static_cast<size_t>(blocks));
  for (int j = 0; j < blocks; ++j) {
    double sum = 0;
    for (int i = 0; i < blocks; ++i) {
      column[static_cast<size_t>(i)] = WeightOf(options, DistanceOf(grid, i, j), largest);
      sum += column[static_cast<size_t>(i)];
    }
    const double scale = options.normalize_columns ? sum : 1;
    for (int i = 0; i < blocks; ++i)
      mixing[static_cast<size_t>(i) * static_cast<size_t>(blocks) + static_cast<size_t>(j)] =
          static_cast<Real>(column[static_cast<size_t>(i)] / scale);
  }
  return {};
}

template <typename Real>
Status ClipMixing(std::span<Real> mixing) {
  for (size_t i = 0; i < mixing.size(); ++i) {
    if (std::isnan(mixing[i]))
      return Fail(ErrorCode::kInvalidArgument, "clip mixing: number {} is {}", i, mixing[i]);
  }
  for (Real& each : mixing) each = std::clamp(each, Real{0}, Real{1});
  return {};
}

template <typename Real>
void MapFeatures(std::span<const Real> x, Real epsilon, Real* out) {
  // Written so that NaN stays NaN.
  for (size_t i = 0; i < x.size(); ++i) out[i] = (x[i] < 0 ? Real{0} : x[i]) + epsilon;
}

template <typename Real>
MhlaGridWorkspace<Real>::MhlaGridWorkspace(const MhlaGridShape& shape_of_calls)
    : shape(shape_of_calls) {
  if (!CheckShape(shape)) return;  // the op refuses the shape, and says why
  const TokenGrid& grid = shape.grid;
  const int64_t blocks = grid.blocks();
  for (int block = 0; block < blocks; ++block) {
    first.push_back(static_cast<int>(token.size()));
    std::array<int, kGridAxes> begin = PlaceOf(grid, block), end;
    for (size_t axis = 0; axis < kGridAxes; ++axis) {
      begin[axis] *= grid.block[axis];
      end[axis] = std::min(grid.size[axis], begin[axis] + grid.block[axis]);
    }
    for (int a = begin[0]; a < end[0]; ++a) {
      for (int b = begin[1]; b < end[1]; ++b) {
        for (int c = begin[2]; c < end[2]; ++c)
          token.push_back((a * grid.size[1] + b) * grid.size[2] + c);
      }
    }
  }
  first.push_back(static_cast<int>(token.size()));
  const int64_t sums = blocks * shape.key_dim * shape.value_dim;
  heads_at_once =
      static_cast<int>(std::clamp<int64_t>(kHeadsNumbers / sums, 1, int64_t{shape.heads}));
  const auto heads = static_cast<size_t>(heads_at_once);
  sum.resize(heads * static_cast<size_t>(sums));
  mixed.resize(sum.size());
  key_sum.resize(heads * static_cast<size_t>(blocks * shape.key_dim));
  mixed_key_sum.resize(key_sum.size());
  norm.resize(heads * token.size());
}

template <typename Real>
Status Validate(const MhlaGridArgs<Real>& args) {
  const MhlaGridShape& shape = args.shape;
  MNEME_TRY(CheckShape(shape));
  MNEME_TRY(RequirePositive(kOp, {{"grids", args.grids}}));
  MNEME_TRY(RequirePointers(kOp, {{"q", args.q},
                                  {"k", args.k},
                                  {"v", args.v},
                                  {"mixing", args.mixing},
                                  {"out", args.out},
                                  {"workspace", args.workspace}}));
  const MhlaGridShape& own = args.workspace->shape;
  if (own.grid.size != shape.grid.size || own.grid.block != shape.grid.block ||
      own.heads != shape.heads || own.key_dim != shape.key_dim || own.value_dim != shape.value_dim)
    return Fail(ErrorCode::kInvalidArgument, "{}: the workspace is for another shape", kOp);
  const int64_t blocks = shape.grid.blocks();
  for (int64_t i = 0; i < blocks * blocks; ++i) {
    if (!(args.mixing[i] >= 0 && args.mixing[i] <= 1))
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: mixing[{}, {}] is {}, expected 0 to 1: clip the matrix first", kOp,
                  i / blocks, i % blocks, args.mixing[i]);
  }
  if (args.normalizer == GridNormalizer::kNone) return {};
  if (!(args.epsilon > 0) || std::isinf(args.epsilon))
    return Fail(ErrorCode::kInvalidArgument, "{}: epsilon is {}, expected a number above 0", kOp,
                args.epsilon);
  if (args.normalizer == GridNormalizer::kOfPlace && !shape.grid.even())
    return Fail(ErrorCode::kInvalidArgument,
                "{}: a normaliser of places with {} x {} x {} tokens in blocks of {} x {} x {}: "
                "expected blocks of one size, or the normaliser of queries",
                kOp, shape.grid.size[0], shape.grid.size[1], shape.grid.size[2],
                shape.grid.block[0], shape.grid.block[1], shape.grid.block[2]);
  return {};
}

template Status StartMixing(const TokenGrid&, const MixingStartOptions&, std::span<float>);
template Status StartMixing(const TokenGrid&, const MixingStartOptions&, std::span<double>);
template Status ClipMixing(std::span<float>);
template Status ClipMixing(std::span<double>);
template void MapFeatures(std::span<const float>, float, float*);
template void MapFeatures(std::span<const double>, double, double*);
template struct MhlaGridWorkspace<float>;
template struct MhlaGridWorkspace<double>;
template Status Validate(const MhlaGridArgs<float>&);
template Status Validate(const MhlaGridArgs<double>&);

}  // namespace mneme::kernels

#include "kernels/gemm.h"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/cpu_stream.h"

namespace mneme::kernels::cpu {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// A decode task reads about this much: some microseconds, many tasks to a matrix.
constexpr size_t kTaskBytes = size_t{32} << 10;

// From so many rows on the kernel computes longer than it waits for memory. Its tasks are longer
// stretches of weights, and it asks for them earlier.
constexpr int64_t kLongTaskRows = 5;
constexpr size_t kLongTaskBytes = size_t{128} << 10;
constexpr int64_t kLongAheadBytes = 16384;

// A widened tile and its piece of x stay in a core's second-level cache.
constexpr int64_t kTileFloats = int64_t{1} << 18;
constexpr int64_t kTilePanelsMax = 4;

// Tiles of a small matrix at least, so that threads end together: 3 tiles leave one of two threads
// idle for a third of the time.
constexpr int64_t kTilesMin = 6;

// The first values of a row or a half of a word, from any stored type.
float Element(const TensorView& block, int64_t index) {
  const std::byte* at = block.bytes + static_cast<size_t>(index) * BytesOf(block.dtype);
  if (block.dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return block.dtype == Dtype::kBf16 ? Bf16ToF32(bits) : F16ToF32(bits);
}

// Writes one output's weights into its lane of a panel.
void PackRow(const TensorView& block, int64_t row, Dtype dtype, int lane, std::byte* panel) {
  const int64_t first = row * block.cols;
  if (dtype == Dtype::kF32) {
    float* to = reinterpret_cast<float*>(panel) + lane;
    for (int64_t i = 0; i < block.cols; ++i) to[i * kPanelOutputs] = Element(block, first + i);
    return;
  }
  uint16_t* to = reinterpret_cast<uint16_t*>(panel) + 2 * lane;
  for (int64_t i = 0; i < block.cols; ++i) {
    std::memcpy(to + (i / 2) * 2 * kPanelOutputs + i % 2, block.bytes + 2 * (first + i), 2);
  }
}

}  // namespace

size_t PanelMatrix::panel_bytes() const {
  const int64_t words = dtype_ == Dtype::kF32 ? cols_ : (cols_ + 1) / 2;
  return static_cast<size_t>(words) * kPanelOutputs * 4;
}

void PanelMatrix::Free::operator()(std::byte* bytes) const { std::free(bytes); }

Result<std::unique_ptr<PackedMatrix>> PanelMatrix::Pack(std::span<const TensorView> blocks) {
  MNEME_TRY(ValidateBlocks(blocks));
  std::unique_ptr<PanelMatrix> matrix(new PanelMatrix());
  matrix->cols_ = blocks[0].cols;
  matrix->dtype_ = Dtype::kBf16;
  for (const TensorView& block : blocks) {
    matrix->rows_ += block.rows;
    if (block.dtype != Dtype::kBf16) matrix->dtype_ = Dtype::kF32;
  }
  const size_t alignment = matrix->bytes() >= kHugePageBytes ? kHugePageBytes : 64;
  const size_t size = (matrix->bytes() + alignment - 1) / alignment * alignment;
  matrix->storage_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, size)));
  if (matrix->storage_ == nullptr)
    return Fail(ErrorCode::kResourceExhausted, "pack weights: no memory for {} bytes", size);
  // A refusal costs speed only.
  if (alignment == kHugePageBytes) madvise(matrix->storage_.get(), size, MADV_HUGEPAGE);
  std::memset(matrix->storage_.get(), 0, size);

  int64_t output = 0;
  for (const TensorView& block : blocks) {
    for (int64_t row = 0; row < block.rows; ++row, ++output) {
      std::byte* panel = matrix->storage_.get() +
                         static_cast<size_t>(output / kPanelOutputs) * matrix->panel_bytes();
      PackRow(block, row, matrix->dtype_, static_cast<int>(output % kPanelOutputs), panel);
    }
  }
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

void MultiplyRows(const MatrixProduct& product, Stream& stream) {
  if (product.rows == 0) return;
  const PanelMatrix& weight = AsPanels(*product.weight);
  const int64_t outputs = product.outputs == 0 ? weight.rows() : product.outputs;
  const int64_t panels = (outputs + kPanelOutputs - 1) / kPanelOutputs;
  const bool long_tasks = product.rows >= kLongTaskRows;
  const size_t task_bytes = long_tasks ? kLongTaskBytes : kTaskBytes;
  const auto group = static_cast<int64_t>(std::max<size_t>(1, task_bytes / weight.panel_bytes()));
  AsCpu(stream).pool().Run((panels + group - 1) / group, [&](int64_t task, int) {
    PanelRows args;
    args.dtype = weight.dtype();
    args.cols = weight.cols();
    args.x = product.x;
    args.x_stride = product.x_stride;
    args.out_stride = product.out_stride;
    args.rows = product.rows;
    args.add = product.add;
    if (long_tasks) args.ahead_bytes = kLongAheadBytes;
    for (int64_t p = task * group; p < std::min(panels, (task + 1) * group); ++p) {
      const int64_t column = p * kPanelOutputs;
      args.panel = weight.panel(p);
      args.out = product.out + column;
      args.outputs = static_cast<int>(std::min<int64_t>(kPanelOutputs, outputs - column));
      MultiplyPanel(args);
    }
  });
}

void MultiplyPieces(const MatrixProduct& product, Stream& stream) {
  MNEME_CHECK(product.rows % kPieceTokens == 0, "rows {}", product.rows);
  if (product.rows == 0) return;
  const PanelMatrix& weight = AsPanels(*product.weight);
  const int64_t outputs = product.outputs == 0 ? weight.rows() : product.outputs;
  const int64_t inputs = weight.cols();
  const int64_t panels = (outputs + kPanelOutputs - 1) / kPanelOutputs;
  const int64_t tile_panels = std::clamp<int64_t>(
      std::min(kTileFloats / (inputs * kPanelOutputs), panels / kTilesMin), 1, kTilePanelsMax);
  const int64_t stride = tile_panels * kPanelOutputs;
  CpuStream& cpu = AsCpu(stream);
  cpu.pool().Run((panels + tile_panels - 1) / tile_panels, [&](int64_t task, int thread) {
    float* tile = cpu.scratch(thread).data();
    const int64_t first = task * tile_panels;
    const int64_t last = std::min(panels, first + tile_panels);
    for (int64_t p = first; p < last; ++p)
      WidenPanel(weight.panel(p), weight.dtype(), inputs, tile + (p - first) * kPanelOutputs,
                 stride);
    PlainProduct call;
    call.rows = kPieceTokens;
    call.cols = static_cast<int>(std::min(outputs, last * kPanelOutputs) - first * kPanelOutputs);
    call.inner = static_cast<int>(inputs);
    call.a_stride = product.x_stride;
    call.b = tile;
    call.b_stride = stride;
    call.c_stride = product.out_stride;
    call.beta = product.add ? 1.0f : 0.0f;
    for (int64_t row = 0; row < product.rows; row += kPieceTokens) {
      call.a = product.x + row * product.x_stride;
      call.c = product.out + row * product.out_stride + first * kPanelOutputs;
      Multiply(call);
    }
  });
}

void Multiply(RowForm form, const MatrixProduct& product, Stream& stream) {
  if (form == RowForm::kDecode) {
    MultiplyRows(product, stream);
  } else {
    MultiplyPieces(product, stream);
  }
}

void Multiply(const PlainProductOf<float>& product) {
  cblas_sgemm(CblasRowMajor, product.transpose_a ? CblasTrans : CblasNoTrans,
              product.transpose_b ? CblasTrans : CblasNoTrans, product.rows, product.cols,
              product.inner, product.alpha, product.a, static_cast<int>(product.a_stride),
              product.b, static_cast<int>(product.b_stride), product.beta, product.c,
              static_cast<int>(product.c_stride));
}

void Multiply(const PlainProductOf<double>& product) {
  cblas_dgemm(CblasRowMajor, product.transpose_a ? CblasTrans : CblasNoTrans,
              product.transpose_b ? CblasTrans : CblasNoTrans, product.rows, product.cols,
              product.inner, product.alpha, product.a, static_cast<int>(product.a_stride),
              product.b, static_cast<int>(product.b_stride), product.beta, product.c,
              static_cast<int>(product.c_stride));
}

}  // namespace mneme::kernels::cpu

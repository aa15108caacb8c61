#include "kernels/gemm.h"

#include "kernels/args.h"

namespace mneme::kernels {

Status ValidateBlocks(std::span<const TensorView> blocks) {
  if (blocks.empty()) return Fail(ErrorCode::kInvalidArgument, "pack weights: no blocks");
  int64_t rows = 0;
  for (const TensorView& block : blocks) {
    MNEME_TRY(RequirePointers("pack weights", {{"a block", block.bytes}}));
    MNEME_TRY(RequirePositive("pack weights", {{"rows", block.rows}, {"cols", block.cols}}));
    if (block.cols > kMatrixInputsMax)
      return Fail(ErrorCode::kInvalidArgument, "pack weights: {} cols, at most {}", block.cols,
                  kMatrixInputsMax);
    if (block.rows > kMatrixOutputsMax - rows)
      return Fail(ErrorCode::kInvalidArgument, "pack weights: over {} rows", kMatrixOutputsMax);
    rows += block.rows;
    if (block.cols != blocks[0].cols)
      return Fail(ErrorCode::kInvalidArgument, "pack weights: blocks of {} and {} cols",
                  blocks[0].cols, block.cols);
    if (block.dtype == Dtype::kI8)
      return Fail(ErrorCode::kInvalidArgument, "pack weights: a block is {}", NameOf(block.dtype));
  }
  return {};
}

}  // namespace mneme::kernels

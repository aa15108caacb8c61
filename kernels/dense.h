// The table entries that are a norm, a matrix product and little else: `project_in`, `project_out`
// and `mlp`. Both forms go through gemm.h, so a row's bits do not depend on its neighbours.
//
// Errors:   kInvalidArgument  an array is null or two sizes disagree; nothing was computed
#pragma once

#include "base/result.h"
#include "kernels/kernel_table.h"

namespace mneme::kernels {

Status Validate(const ProjectInArgs& args);
Status Validate(const ProjectOutArgs& args);
Status Validate(const MlpArgs& args);

namespace cpu {

Status ProjectIn(const ProjectInArgs& args, Stream& stream);
Status ProjectOut(const ProjectOutArgs& args, Stream& stream);
Status Mlp(const MlpArgs& args, Stream& stream);

struct NormRowsArgs {
  const float* x = nullptr;       // [rows, size]
  const float* weight = nullptr;  // [size]
  int64_t rows = 0;
  int64_t size = 0;
  float epsilon = 0;
  NormWeight norm = NormWeight::kZeroCentred;
  float* out = nullptr;  // [rows, size]
};

// out[n] <- Norm(x[n]), on the stream's threads.
void NormRows(const NormRowsArgs& args, Stream& stream);

}  // namespace cpu
}  // namespace mneme::kernels

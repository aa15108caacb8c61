#include "kernels/dense.h"

#include <algorithm>

#include "kernels/activation.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"

namespace mneme::kernels::cpu {
namespace {

// Rows of one task of a loop over rows: eight sessions keep several threads busy.
constexpr int64_t kTaskRows = 2;

}  // namespace

void NormRows(const NormRowsArgs& args, Stream& stream) {
  AsCpu(stream).pool().Run((args.rows + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
    for (int64_t row = task * kTaskRows; row < std::min(args.rows, (task + 1) * kTaskRows); ++row)
      Norm(args.norm, args.x + row * args.size, args.weight, args.size, args.epsilon,
           args.out + row * args.size);
  });
}

Status ProjectIn(const ProjectInArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  const int64_t rows = args.step->rows;
  const int64_t width = args.weight->cols();
  float* normed = AsCpu(stream).shared(static_cast<size_t>(rows * width));
  NormRows({args.x, args.norm_weight, rows, width, args.epsilon, args.norm, normed}, stream);
  MatrixProduct product;
  product.weight = args.weight;
  product.x = normed;
  product.x_stride = width;
  product.out = args.out;
  product.out_stride = args.weight->rows();
  product.rows = rows;
  Multiply(args.step->form, product, stream);
  return {};
}

Status ProjectOut(const ProjectOutArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  MatrixProduct product;
  product.weight = args.weight;
  product.x = args.in;
  product.x_stride = args.weight->cols();
  product.out = args.x;
  product.out_stride = args.weight->rows();
  product.rows = args.step->rows;
  product.add = true;
  Multiply(args.step->form, product, stream);
  return {};
}

Status Mlp(const MlpArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  const int64_t rows = args.step->rows;
  const int64_t width = args.gate_up->cols();  // D
  const int64_t inner = args.down->cols();     // F
  float* normed = AsCpu(stream).shared(static_cast<size_t>(rows * (width + 2 * inner)));
  float* gate_up = normed + rows * width;  // [rows, 2 F]
  NormRows({args.x, args.norm_weight, rows, width, args.epsilon, args.norm, normed}, stream);

  MatrixProduct in;
  in.weight = args.gate_up;
  in.x = normed;
  in.x_stride = width;
  in.out = gate_up;
  in.out_stride = 2 * inner;
  in.rows = rows;
  Multiply(args.step->form, in, stream);

  AsCpu(stream).pool().Run(rows, [&](int64_t row, int) {
    float* gate = gate_up + row * 2 * inner;
    SiluTimes(gate, gate + inner, inner, gate);
  });

  MatrixProduct out;
  out.weight = args.down;
  out.x = gate_up;
  out.x_stride = 2 * inner;
  out.out = args.x;
  out.out_stride = width;
  out.rows = rows;
  out.add = true;
  Multiply(args.step->form, out, stream);
  return {};
}

}  // namespace mneme::kernels::cpu

// RowLoops: the vector loops that the CPU ops of the linear layers are made of: dot products with
// rows, weighted sums of rows, exponentials and number conversions.
//
// The machine's widest instruction set is chosen once, at the first call. On one machine every sum
// has one fixed order, which depends on the sizes given and on nothing else; results may differ in
// the last bits between instruction sets.
//
// Shapes:   row j of `rows` starts at rows + j * stride; count and width may be zero.
// Threads:  any; nothing is kept between calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mneme::kernels::cpu {

// out[j] = rows[j] . x
void DotRows(const float* rows, int64_t stride, int count, int width, const float* x, float* out);

// out0[j] = rows[j] . x0 and out1[j] = rows[j] . x1, reading each row once.
void DotRowsTwice(const float* rows, int64_t stride, int count, int width, const float* x0,
                  const float* x1, float* out0, float* out1);

// out[j] = rows[j] . x for rows in f16 without gaps.
void DotRowsF16(const uint16_t* rows, int count, int width, const float* x, float* out);

// sum += sum_j weight[j] rows[j]
void AddRows(const float* rows, int64_t stride, int count, int width, const float* weight,
             float* sum);

// The same with two sets of weights, reading each row once.
void AddRowsTwice(const float* rows, int64_t stride, int count, int width, const float* weight0,
                  const float* weight1, float* sum0, float* sum1);

// AddRows for rows in f16 without gaps.
void AddRowsF16(const uint16_t* rows, int count, int width, const float* weight, float* sum);

// row . x with the row in int8.
float DotI8(const int8_t* row, int width, const float* x);

// e^x, x <= 0, and 0 below kDecayDrop (gdn_step.h).
float DecayOf(float x);

// out[j] = DecayOf(last - c[j]) factor[j]; c never rises, so no exponent is positive.
void DecayWeights(const float* c, int count, float last, const float* factor, float* out);

// log (1/count sum_j e^{scale score[j]}), count >= 1.
float LogMeanExp(const float* score, int count, float scale);

// Turns scale * score into its softmax in place.
void Softmax(float* score, int count, float scale);

// out[c] = SiLU(sum_tap weight[c, tap] x[tap][c]) over the kConvTaps inputs, oldest first.
void ConvSilu(const float* weight, const float* const* x, int width, float* out);

// out = SiLU(x)
void SiluRow(const float* x, int width, float* out);

// out = y * scale * norm_weight * SiLU(z)
void GateRow(const float* y, float scale, const float* norm_weight, const float* z, int width,
             float* out);

// out = scale * x
void ScaleRow(const float* x, float scale, int width, float* out);

// Exact.
void F16ToF32Row(const uint16_t* x, int64_t count, float* out);

// scale * x to the nearest f16, ties to even; `scale` is a power of two, so there is one rounding.
void F32ToF16Row(const float* x, int64_t count, float scale, uint16_t* out);

// The largest magnitude; not finite when any number is not.
float MagnitudeMax(const float* x, int64_t count);

}  // namespace mneme::kernels::cpu

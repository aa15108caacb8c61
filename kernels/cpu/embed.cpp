#include "kernels/embed.h"

#include <cstring>

#include "kernels/dtype.h"

namespace mneme::kernels::cpu {

Status Embed(const EmbedArgs& args, Stream&) {
  MNEME_TRY(Validate(args));
  const StepTable& step = *args.step;
  for (int32_t row = 0; row < step.rows; ++row) {
    if (step.token[row] < 0 || step.token[row] >= args.table.rows)
      return Fail(ErrorCode::kInvalidArgument, "embed: row {}: token {} of a table of {}", row,
                  step.token[row], args.table.rows);
  }
  const auto width = static_cast<size_t>(args.table.cols);
  const size_t row_bytes = width * BytesOf(args.table.dtype);
  for (int32_t row = 0; row < step.rows; ++row) {
    const std::byte* from = args.table.bytes + static_cast<size_t>(step.token[row]) * row_bytes;
    float* to = args.x + static_cast<size_t>(row) * width;
    if (args.table.dtype == Dtype::kF32) {
      std::memcpy(to, from, row_bytes);
      continue;
    }
    for (size_t i = 0; i < width; ++i) {
      uint16_t bits;
      std::memcpy(&bits, from + 2 * i, sizeof(bits));
      to[i] = args.table.dtype == Dtype::kBf16 ? Bf16ToF32(bits) : F16ToF32(bits);
    }
  }
  return {};
}

}  // namespace mneme::kernels::cpu

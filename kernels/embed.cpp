#include "kernels/embed.h"

#include "kernels/args.h"

namespace mneme::kernels {

Status Validate(const EmbedArgs& args) {
  MNEME_TRY(RequireStep("embed", args.step));
  if (args.step->rows == 0) return {};
  MNEME_TRY(RequirePointers(
      "embed", {{"token", args.step->token}, {"table", args.table.bytes}, {"x", args.x}}));
  MNEME_TRY(RequirePositive("embed", {{"table rows", args.table.rows}, {"D", args.table.cols}}));
  if (args.table.dtype == Dtype::kI8)
    return Fail(ErrorCode::kInvalidArgument, "embed: table is {}", NameOf(args.table.dtype));
  return {};
}

}  // namespace mneme::kernels

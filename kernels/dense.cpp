#include "kernels/dense.h"

#include "kernels/args.h"

namespace mneme::kernels {

Status Validate(const ProjectInArgs& args) {
  MNEME_TRY(RequireStep("project in", args.step));
  return RequirePointers("project in", {{"norm_weight", args.norm_weight},
                                        {"weight", args.weight},
                                        {"x", args.x},
                                        {"out", args.out}});
}

Status Validate(const ProjectOutArgs& args) {
  MNEME_TRY(RequireStep("project out", args.step));
  return RequirePointers("project out", {{"weight", args.weight}, {"in", args.in}, {"x", args.x}});
}

Status Validate(const MlpArgs& args) {
  MNEME_TRY(RequireStep("mlp", args.step));
  MNEME_TRY(RequirePointers("mlp", {{"norm_weight", args.norm_weight},
                                    {"gate_up", args.gate_up},
                                    {"down", args.down},
                                    {"x", args.x}}));
  const PackedMatrix& gate_up = *args.gate_up;
  const PackedMatrix& down = *args.down;
  if (gate_up.rows() != 2 * down.cols() || gate_up.cols() != down.rows())
    return Fail(ErrorCode::kInvalidArgument, "mlp: gate_up is [{}, {}] and down [{}, {}]",
                gate_up.rows(), gate_up.cols(), down.rows(), down.cols());
  return {};
}

}  // namespace mneme::kernels

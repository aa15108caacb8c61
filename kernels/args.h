// Checks that every op makes of its args, so that all refuse the same mistake in the same words:
// `mlp: x is null`, `mlp: rows is -1`.
//
// Errors:   kInvalidArgument  always
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/result.h"
#include "kernels/step_table.h"

namespace mneme::kernels {

struct NamedPointer {
  std::string_view name;
  const void* pointer = nullptr;
};

// The first null one is named.
inline Status RequirePointers(std::string_view op, std::initializer_list<NamedPointer> pointers) {
  for (const NamedPointer& each : pointers) {
    if (each.pointer == nullptr)
      return Fail(ErrorCode::kInvalidArgument, "{}: {} is null", op, each.name);
  }
  return {};
}

struct NamedSize {
  std::string_view name;
  int64_t value = 0;
};

// Each at least 1; the first that is not is named with its value.
inline Status RequirePositive(std::string_view op, std::initializer_list<NamedSize> sizes) {
  for (const NamedSize& each : sizes) {
    if (each.value < 1)
      return Fail(ErrorCode::kInvalidArgument, "{}: {} is {}", op, each.name, each.value);
  }
  return {};
}

// What every op that reads `rows` and `form` alone needs of the table.
inline Status RequireStep(std::string_view op, const StepTable* step) {
  MNEME_TRY(RequirePointers(op, {{"step", step}}));
  if (step->rows < 0) return Fail(ErrorCode::kInvalidArgument, "{}: rows is {}", op, step->rows);
  if (step->form == RowForm::kPrefill && step->rows % kPieceTokens != 0)
    return Fail(ErrorCode::kInvalidArgument, "{}: {} prefill rows, not a multiple of {}", op,
                step->rows, kPieceTokens);
  return {};
}

}  // namespace mneme::kernels

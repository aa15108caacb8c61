#include "proto/error_wire.h"

#include <string>
#include <string_view>
#include <utility>

namespace mneme::proto {
namespace {

ErrorCode CodeNamed(std::string_view name) {
  for (int value = 0; value <= static_cast<int>(ErrorCode::kInternal); ++value) {
    if (NameOf(static_cast<ErrorCode>(value)) == name) return static_cast<ErrorCode>(value);
  }
  return ErrorCode::kInternal;
}

Reason ReasonNamed(std::string_view name) {
  for (int value = 1; value <= static_cast<int>(Reason::kDraining); ++value) {
    if (NameOf(static_cast<Reason>(value)) == name) return static_cast<Reason>(value);
  }
  return Reason::kNone;
}

}  // namespace

v1::Error ToWire(const Error& error) {
  v1::Error wire;
  wire.set_code(std::string(NameOf(error.code())));
  if (error.reason() != Reason::kNone) wire.set_reason(std::string(NameOf(error.reason())));
  wire.set_message(error.message());
  wire.set_retry_after_ms(error.retry_after_ms());
  return wire;
}

Error FromWire(const v1::Error& wire) {
  const Reason reason = ReasonNamed(wire.reason());
  Error error = reason == Reason::kNone ? Error(CodeNamed(wire.code()), wire.message())
                                        : Error(reason, wire.message());
  if (wire.retry_after_ms() > 0) error = std::move(error).RetryAfter(wire.retry_after_ms());
  return error;
}

}  // namespace mneme::proto

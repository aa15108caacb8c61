// Result<T>: a T, or the Error that says why there is none. Status: the same with no T.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"

namespace mneme {

// A thin skin over tl::expected for two reasons: [[nodiscard]] on the class makes a dropped error a
// compile error everywhere, and the day the toolchain has std::expected only this file changes.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  Result() = default;
  Result(Base base) : Base(std::move(base)) {}  // NOLINT(google-explicit-constructor)
};

using Status = Result<void>;

// return Fail(ErrorCode::kNotFound, "session {}", id);
template <typename... Args>
tl::unexpected<Error> Fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error(code, fmt::format(format, std::forward<Args>(args)...)));
}

// The same with a reason of the closed list, which fixes the code.
template <typename... Args>
tl::unexpected<Error> Fail(Reason reason, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error(reason, fmt::format(format, std::forward<Args>(args)...)));
}

inline tl::unexpected<Error> Fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace mneme

// Leaves the enclosing function with the error, if there is one. Not for coroutines.
#define MNEME_TRY(expression)                                                   \
  do {                                                                          \
    if (auto&& mneme_status = (expression); !mneme_status)                      \
      return ::tl::unexpected<::mneme::Error>(std::move(mneme_status).error()); \
  } while (false)

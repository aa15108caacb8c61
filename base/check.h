// MNEME_CHECK: what must hold or the program is wrong. On in release too: prints the condition and
// the values, then aborts. Never reachable from user input; that gets an Error.
#pragma once

#include <fmt/format.h>

#include <string>

namespace mneme {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& values);

}  // namespace mneme

// MNEME_CHECK(slot < slots, "slot {} of {}", slot, slots);
#define MNEME_CHECK(condition, ...)                                                     \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::mneme::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// The same where it would cost too much: checked in debug builds only.
#ifdef NDEBUG
#define MNEME_DCHECK(condition, ...) static_cast<void>(0)
#else
#define MNEME_DCHECK(condition, ...) MNEME_CHECK(condition, __VA_ARGS__)
#endif

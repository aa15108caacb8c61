// The log: one line per event on standard error, `time level event key=value ...`, where the time
// is UTC: 2026-11-29T16:20:05.123Z.
//
//   MNEME_LOG(kInfo, "resumed", "session={} restored={} replayed={}", id, restored, replayed);
//
// Never prompt text, keys or addresses. Threads: any.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace mneme {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// Lines below `level` are dropped. The default is kInfo.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void LogEvent(LogLevel level, std::string_view event, const std::string& fields);

// Lines since the start that did not go through: standard error is closed, full or not read.
uint64_t LogLinesLost();

}  // namespace mneme

#define MNEME_LOG(level, event, ...)                                                  \
  do {                                                                                \
    if (::mneme::LogEnabled(::mneme::LogLevel::level))                                \
      ::mneme::LogEvent(::mneme::LogLevel::level, event, ::fmt::format(__VA_ARGS__)); \
  } while (false)

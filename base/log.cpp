#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "base/line_stream.h"

namespace mneme {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::atomic<uint64_t> lines_lost{0};

// Standard error, whatever became of its reader.
class ErrorSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& line) override {
    if (stream_.lost() > 0) {
      const std::string text = fmt::format("log_lines_lost lines={}", stream_.lost());
      if (Put({line.time, {}, line.logger_name, spdlog::level::warn, text})) stream_.SaidLost();
    }
    if (!Put(line)) lines_lost.fetch_add(1, std::memory_order_relaxed);  // it orders nothing
  }
  void flush_() override {}

 private:
  bool Put(const spdlog::details::log_msg& line) {
    spdlog::memory_buf_t text;
    formatter_->format(line, text);
    return stream_.Write({text.data(), text.size()});
  }

  LineStream stream_{STDERR_FILENO};
};

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("mneme", std::make_shared<ErrorSink>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

bool LogEnabled(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

void LogEvent(LogLevel level, std::string_view event, const std::string& fields) {
  Logger().log(ToSpdlog(level), "{} {}", event, fields);
}

uint64_t LogLinesLost() { return lines_lost.load(std::memory_order_relaxed); }

}  // namespace mneme

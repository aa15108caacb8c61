#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "cli/terminal_input.h"

namespace mneme::cli {
namespace {

constexpr size_t kLineBytesMax = kMiB;
constexpr size_t kBarWidth = 24;

std::atomic<bool> interrupted{false};

void OnInterrupt(int) {
  DropTypedAhead();  // a paste that was not meant is not sent line by line
  if (!interrupted.exchange(true)) return;
  RestoreTerminal();
  _exit(130);
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, which some terminals take for commands, are C2 80 to C2 9F.
    const bool high_control = byte == 0xc2 && i + 1 < text.size() &&
                              static_cast<unsigned char>(text[i + 1]) < 0xa0 &&
                              static_cast<unsigned char>(text[i + 1]) >= 0x80;
    if (high_control) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}",
                     static_cast<unsigned>(static_cast<unsigned char>(text[++i])));
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned>(byte));
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string Count(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string CountOf(uint64_t number, std::string_view noun) {
  return Count(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

std::string Bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string LinesAndBytes(std::string_view text) {
  const auto breaks = static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
  const uint64_t lines = breaks + (text.empty() || text.back() == '\n' ? 0 : 1);
  return fmt::format("{} line{}, {} bytes", Count(lines), lines == 1 ? "" : "s",
                     Count(text.size()));
}

std::string Shortened(std::string_view text) {
  constexpr std::ptrdiff_t kLinesWhole = 10;
  constexpr size_t kBytesWhole = 1000;
  constexpr int kLinesShown = 3;
  constexpr size_t kBytesShown = 300;
  const bool whole =
      text.size() <= kBytesWhole && std::count(text.begin(), text.end(), '\n') < kLinesWhole;
  if (whole) return std::string(text);
  size_t end = 0;
  for (int line = 0; line < kLinesShown && end != text.npos; ++line)
    end = text.find('\n', end == 0 ? 0 : end + 1);
  end = std::min(end, text.size());
  const bool cut = end > kBytesShown;
  if (cut) {
    end = kBytesShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  }
  return fmt::format("{}{}\n({})", text.substr(0, end), cut ? "..." : "", LinesAndBytes(text));
}

std::string Moment(int64_t wall_us) {
  if (wall_us == 0) return "never";
  const std::time_t seconds = wall_us / 1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M %Z", &local);
  return text.data();
}

bool IsTerminal(int file) { return isatty(file) == 1; }

bool UsesColour(int file) {
  const char* no_color = std::getenv("NO_COLOR");
  return IsTerminal(file) && (no_color == nullptr || *no_color == '\0');
}

std::string Dim(const std::string& text) {
  return UsesColour(2) ? "\033[2m" + text + "\033[0m" : text;
}

void ProgressLine::Show(const std::string& phase, uint64_t done, uint64_t total,
                        double per_second) {
  done = std::min(done, total);
  const uint64_t tenths = total == 0 ? 0 : done * 10 / total;
  const std::string rate = per_second > 0 ? fmt::format(", {:.0f}/s", per_second) : "";
  if (terminal_) {
    const size_t filled = total == 0 ? 0 : static_cast<size_t>(done * kBarWidth / total);
    fmt::print(stderr, "\r\033[K{} [{}{}] {}/{} {}{}", Printable(phase), std::string(filled, '#'),
               std::string(kBarWidth - filled, ' '), Count(done), Count(total), unit_, rate);
    std::fflush(stderr);
  } else if (!shown_ || phase != phase_ || tenths > tenths_) {
    fmt::print(stderr, "{} {}/{} {}{}\n", Printable(phase), done, total, unit_, rate);
  }
  shown_ = true;
  phase_ = phase;
  tenths_ = tenths;
}

void ProgressLine::Clear() {
  if (shown_ && terminal_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
  shown_ = false;
}

const std::atomic<bool>& CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART, so that a read for input ends
  sigaction(SIGINT, &action, nullptr);
  return interrupted;
}

void ForgetInterrupt() { interrupted = false; }

std::optional<std::string> LineReader::Next() {
  end_ = End::kNone;
  for (;;) {
    const size_t newline = buffer_.find('\n');
    if (newline != buffer_.npos) {
      std::string line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return line;
    }
    if (buffer_.size() > kLineBytesMax) {
      end_ = End::kLineTooLong;
      return std::nullopt;
    }
    if (exhausted_) {
      end_ = End::kEndOfInput;
      if (buffer_.empty()) return std::nullopt;
      return std::exchange(buffer_, {});
    }
    if (interrupted) {
      end_ = End::kInterrupted;
      return std::nullopt;
    }
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(0, bytes.data(), bytes.size());
    if (count > 0) {
      buffer_.append(bytes.data(), static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      exhausted_ = true;
    }
  }
}

}  // namespace mneme::cli

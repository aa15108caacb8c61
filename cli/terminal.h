// What people see: text made safe for a terminal, numbers, a progress line, and a line of input.
//
// Threads:  one, the command's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace mneme::cli {

// Control characters and escape sequences become visible; newline and tab stay. Model text, names
// and server messages go through this before a terminal sees them.
std::string Printable(std::string_view text);

// 30,112
std::string Count(uint64_t number);
// 1 turn, 30,112 turns
std::string CountOf(uint64_t number, std::string_view noun);
// 1.2 GiB
std::string Bytes(uint64_t bytes);
// 572 lines, 30,000 bytes
std::string LinesAndBytes(std::string_view text);
// All of a text of up to ten lines and 1,000 bytes; of a longer one its beginning, then a line that
// says (572 lines, 30,000 bytes).
std::string Shortened(std::string_view text);
// 2026-11-29 17:20 CET, in local time and with its zone; "never" for 0.
std::string Moment(int64_t wall_us);

// Colour and progress bars are for terminals, and colour only where NO_COLOR is not set.
bool IsTerminal(int file);
bool UsesColour(int file);
// `text` dimmed where standard error uses colour.
std::string Dim(const std::string& text);

// One line of standard error that says how far something is: a bar on a terminal, else plain lines
// at most once in ten per cent.
class ProgressLine {
 public:
  explicit ProgressLine(std::string unit = "tokens") : unit_(std::move(unit)) {}
  // `per_second` 0: not known.
  void Show(const std::string& phase, uint64_t done, uint64_t total, double per_second);
  // Removes the bar, if there is one.
  void Clear();

 private:
  const std::string unit_;
  const bool terminal_ = IsTerminal(2);
  bool shown_ = false;
  std::string phase_;
  uint64_t tenths_ = 0;
};

// Ctrl-C sets a flag; a second one while it is set ends the process.
const std::atomic<bool>& CatchInterrupts();
void ForgetInterrupt();

// Lines of standard input.
class LineReader {
 public:
  enum class End : uint8_t { kNone, kEndOfInput, kInterrupted, kLineTooLong };

  // The next line without its newline, or why there is none. Lines beyond 1 MiB end the input.
  std::optional<std::string> Next();
  End end() const { return end_; }

 private:
  std::string buffer_;
  End end_ = End::kNone;
  bool exhausted_ = false;
};

}  // namespace mneme::cli

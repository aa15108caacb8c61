// TerminalInput reads messages that a person types or pastes at a terminal.
//
// While one exists the terminal hands over every byte as it comes: its own line mode cuts a line
// after 4,095 bytes without a word. What is typed during an answer waits for the next prompt.
//
// Owns:     the mode of the terminal on standard input, given back at the end, before a stop
//           (Ctrl-Z) and when a signal ends the process.
// Threads:  one, the command's own; at most one of these at a time.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "cli/line_editor.h"
#include "cli/terminal.h"

namespace mneme::cli {

class TerminalInput {
 public:
  // Shows what is typed on the file `shown_on`; -1: nowhere. `*stop` is CatchInterrupts's.
  TerminalInput(int shown_on, const std::atomic<bool>& stop);
  ~TerminalInput();
  TerminalInput(const TerminalInput&) = delete;
  TerminalInput& operator=(const TerminalInput&) = delete;

  // The next message, or why there is none. One that is too long is dropped whole; the next may
  // follow.
  std::optional<std::string> Next();
  LineReader::End end() const { return end_; }

 private:
  void Draw();
  void ShowTaken(const std::string& message);
  std::optional<std::string> None(LineReader::End end);

  const int shown_on_;
  const std::atomic<bool>& stop_;
  LineEditor editor_;
  std::string unread_;
  LineReader::End end_ = LineReader::End::kNone;
};

// Gives the terminal its former mode back, if a TerminalInput changed it. Safe in a signal handler.
void RestoreTerminal();

// Throws away what was typed and not read yet, while a TerminalInput exists. Safe in a signal
// handler.
void DropTypedAhead();

}  // namespace mneme::cli

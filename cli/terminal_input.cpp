#include "cli/terminal_input.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace mneme::cli {
namespace {

constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kPasteOn = "\033[?2004h";
constexpr std::string_view kPasteOff = "\033[?2004l";
constexpr uint16_t kColumnsDefault = 80;
constexpr size_t kColumnsMin = 10;
constexpr std::array<int, 3> kEndings = {SIGTERM, SIGHUP, SIGQUIT};

// What the signal handlers need; written only while no TerminalInput exists.
termios former_mode;
termios editing_mode;
int paste_file = -1;
volatile std::sig_atomic_t editing = 0;

void Write(int file, std::string_view bytes) {
  while (file >= 0 && !bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void SetEditing() {
  tcsetattr(0, TCSANOW, &editing_mode);
  Write(paste_file, kPasteOn);
}

void OnStop(int) {
  const int saved = errno;
  RestoreTerminal();
  raise(SIGSTOP);
  editing = 1;
  SetEditing();
  errno = saved;
}

void OnEnding(int signal) {
  RestoreTerminal();
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void Catch(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART, so that a read ends and draws again
  sigaction(signal, &action, nullptr);
}

// Beside the prompt, and short of the last column, where some terminals break the line.
size_t TextColumns(int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size.ws_col = kColumnsDefault;
  return std::max<size_t>(size.ws_col, kColumnsMin) - kPrompt.size() - 1;
}

}  // namespace

void RestoreTerminal() {
  if (editing == 0) return;
  editing = 0;
  Write(paste_file, kPasteOff);
  tcsetattr(0, TCSANOW, &former_mode);
}

void DropTypedAhead() {
  if (editing != 0) tcflush(0, TCIFLUSH);
}

TerminalInput::TerminalInput(int shown_on, const std::atomic<bool>& stop)
    : shown_on_(shown_on), stop_(stop) {
  if (tcgetattr(0, &former_mode) != 0) return;
  editing_mode = former_mode;
  // Ctrl-C, Ctrl-Z and Ctrl-\ stay signals; what was typed before them is not thrown away.
  editing_mode.c_lflag |= NOFLSH;
  editing_mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  editing_mode.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  editing_mode.c_cc[VMIN] = 1;
  editing_mode.c_cc[VTIME] = 0;
  paste_file = shown_on;
  editing = 1;
  for (const int signal : kEndings) Catch(signal, OnEnding);
  Catch(SIGTSTP, OnStop);
  SetEditing();
}

TerminalInput::~TerminalInput() {
  RestoreTerminal();
  for (const int signal : kEndings) std::signal(signal, SIG_DFL);
  std::signal(SIGTSTP, SIG_DFL);
}

std::optional<std::string> TerminalInput::Next() {
  end_ = LineReader::End::kNone;
  for (;;) {
    std::string_view bytes = unread_;
    const LineEditor::Event event = editor_.Feed(bytes);
    unread_.erase(0, unread_.size() - bytes.size());
    switch (event) {
      case LineEditor::Event::kMessage: {
        std::string message = editor_.Take();
        ShowTaken(message);
        return message;
      }
      case LineEditor::Event::kTooLong:
        return None(LineReader::End::kLineTooLong);
      case LineEditor::Event::kEnd:
        return None(LineReader::End::kEndOfInput);
      case LineEditor::Event::kNone:
        break;
    }
    Draw();
    if (stop_) {
      editor_.Reset();
      return None(LineReader::End::kInterrupted);
    }
    std::array<char, 4096> read_bytes{};
    const ssize_t count = ::read(0, read_bytes.data(), read_bytes.size());
    if (count > 0) {
      unread_.append(read_bytes.data(), static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return None(LineReader::End::kEndOfInput);
    }
  }
}

void TerminalInput::Draw() {
  const LineView view = VisiblePart(editor_.text(), editor_.cursor(), TextColumns(shown_on_));
  Write(shown_on_, fmt::format("\r{}{}\033[K\r\033[{}C", kPrompt, view.text,
                               kPrompt.size() + view.cursor_columns));
}

// The beginning, where not all of it can be seen, and how much there is.
void TerminalInput::ShowTaken(const std::string& message) {
  std::string shown =
      fmt::format("\r{}{}\033[K\n", kPrompt, VisiblePart(message, 0, TextColumns(shown_on_)).text);
  if (message.find('\n') != message.npos) shown += fmt::format("({})\n", LinesAndBytes(message));
  Write(shown_on_, shown);
}

std::optional<std::string> TerminalInput::None(LineReader::End end) {
  end_ = end;
  Write(shown_on_, "\n");
  return std::nullopt;
}

}  // namespace mneme::cli

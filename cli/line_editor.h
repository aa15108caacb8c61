// LineEditor turns the bytes that a terminal sends, keys and pastes, into messages.
//
// Between ESC [200~ and ESC [201~ (bracketed paste) bytes are text whatever they are; a line break
// there, CR, LF or CR LF, is one LF of the message and does not end it. Elsewhere CR or LF ends the
// message. docs/getting-started.md lists the keys.
//
// Errors:   kTooLong  the message is over kMessageBytesMax; none of it is kept
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace mneme::cli {

inline constexpr size_t kMessageBytesMax = kMiB;
inline constexpr size_t kHistoryMessagesMax = 100;  // that arrow up finds again

class LineEditor {
 public:
  enum class Event : uint8_t { kNone, kMessage, kTooLong, kEnd };

  // Takes bytes from the front of `bytes` until a message ends or none are left.
  Event Feed(std::string_view& bytes);

  // The message whose end Feed told; the next one begins.
  std::string Take();
  // Drops what was typed.
  void Reset();

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }

 private:
  enum class State : uint8_t { kText, kEscape, kSequence, kQuoted, kPaste };

  Event Byte(char byte);
  void Key(char byte);
  void AfterEscape(char byte);
  void Sequence();
  void PasteByte(char byte);
  void Insert(std::string_view text);
  void Erase(size_t from, size_t to);
  size_t WordBefore(size_t at) const;
  size_t WordAfter(size_t at) const;
  void Recall(size_t index);

  State state_ = State::kText;
  std::string text_;
  size_t cursor_ = 0;     // byte index into text_
  std::string sequence_;  // after ESC [ or ESC O
  std::string paste_;
  bool too_long_ = false;
  std::vector<std::string> history_;
  size_t recalled_ = 0;  // index into history_; its size: the message being typed
  std::string draft_;    // that message, while another is shown
};

// The part of `text` around byte `cursor` that fits in `columns`, and the columns before the
// cursor. Line breaks and control characters are visible; what is cut off is an ellipsis.
struct LineView {
  std::string text;
  size_t cursor_columns = 0;
};
LineView VisiblePart(std::string_view text, size_t cursor, size_t columns);

}  // namespace mneme::cli

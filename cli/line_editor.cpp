#include "cli/line_editor.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace mneme::cli {
namespace {

constexpr std::string_view kPasteBegin = "200~";
constexpr std::string_view kPasteEnd = "\033[201~";
constexpr size_t kSequenceBytesMax = 16;
constexpr std::string_view kEllipsis = "\u2026";
constexpr std::string_view kLineBreak = "\u21b5";

constexpr char Control(char letter) { return static_cast<char>(letter & 0x1f); }

bool IsBlank(char byte) { return byte == ' ' || byte == '\n' || byte == '\t'; }

bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Where the character before, or after, byte `at` of `text` begins.
size_t Before(std::string_view text, size_t at) {
  if (at == 0) return 0;
  --at;
  for (size_t steps = 1; at > 0 && steps < 4 && Continues(text[at]); ++steps) --at;
  return at;
}

size_t After(std::string_view text, size_t at) {
  return at < text.size() ? at + FirstCharacter(text.substr(at)).bytes : text.size();
}

// The first character of `bytes` as it is shown.
struct Cell {
  std::string text;
  size_t bytes = 1;  // of the message
  size_t columns = 1;
};

Cell FirstCell(std::string_view bytes) {
  const auto byte = static_cast<unsigned char>(bytes.front());
  if (byte == '\n') return {std::string(kLineBreak)};
  if (byte == '\t') return {" "};
  if (byte < 0x20 || byte == 0x7f)
    return {{'^', static_cast<char>(byte ^ 0x40)}, /*bytes=*/1, /*columns=*/2};
  if (byte < 0x80) return {std::string(1, bytes.front())};
  const Utf8Step step = FirstCharacter(bytes);
  if (step.kind != Utf8Kind::kCharacter) return {std::string(kReplacement), step.bytes};
  utf8proc_int32_t character = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()),
                   static_cast<utf8proc_ssize_t>(step.bytes), &character);
  if (utf8proc_category(character) == UTF8PROC_CATEGORY_CC)
    return {std::string(kReplacement), step.bytes};
  return {std::string(bytes.substr(0, step.bytes)), step.bytes,
          static_cast<size_t>(std::max(0, utf8proc_charwidth(character)))};
}

}  // namespace

LineEditor::Event LineEditor::Feed(std::string_view& bytes) {
  Event event = Event::kNone;
  while (event == Event::kNone && !bytes.empty()) {
    const char byte = bytes.front();
    bytes.remove_prefix(1);
    event = Byte(byte);
  }
  return event;
}

LineEditor::Event LineEditor::Byte(char byte) {
  switch (state_) {
    case State::kPaste:
      PasteByte(byte);
      return Event::kNone;
    case State::kQuoted:
      state_ = State::kText;
      Insert({&byte, 1});
      return Event::kNone;
    case State::kEscape:
      AfterEscape(byte);
      return Event::kNone;
    case State::kSequence:
      sequence_.push_back(byte);
      if (byte >= 0x40 && byte <= 0x7e) {
        state_ = State::kText;
        Sequence();
      } else if (sequence_.size() > kSequenceBytesMax) {
        state_ = State::kText;
      }
      return Event::kNone;
    case State::kText:
      break;
  }
  if (byte == '\r' || byte == '\n') {
    if (!too_long_) return Event::kMessage;
    Reset();
    return Event::kTooLong;
  }
  if (byte == Control('D') && text_.empty() && !too_long_) return Event::kEnd;
  Key(byte);
  return Event::kNone;
}

void LineEditor::Key(char byte) {
  switch (byte) {
    case '\033':
      state_ = State::kEscape;
      return;
    case Control('V'):
      state_ = State::kQuoted;
      return;
    case Control('H'):
    case 0x7f:
      return Erase(Before(text_, cursor_), cursor_);
    case Control('D'):
      return Erase(cursor_, After(text_, cursor_));
    case Control('A'):
      cursor_ = 0;
      return;
    case Control('E'):
      cursor_ = text_.size();
      return;
    case Control('B'):
      cursor_ = Before(text_, cursor_);
      return;
    case Control('F'):
      cursor_ = After(text_, cursor_);
      return;
    case Control('K'):
      return Erase(cursor_, text_.size());
    case Control('U'):
      return Erase(0, cursor_);
    case Control('W'):
      return Erase(WordBefore(cursor_), cursor_);
    case Control('P'):
      return Recall(recalled_ - 1);
    case Control('N'):
      return Recall(recalled_ + 1);
    default:
      if (byte == '\t' || static_cast<unsigned char>(byte) >= 0x20) Insert({&byte, 1});
  }
}

void LineEditor::AfterEscape(char byte) {
  state_ = State::kText;
  switch (byte) {
    case '[':
    case 'O':
      sequence_.clear();
      state_ = State::kSequence;
      return;
    case '\033':
      state_ = State::kEscape;
      return;
    case '\r':
    case '\n':
      return Insert("\n");
    case 'b':
      cursor_ = WordBefore(cursor_);
      return;
    case 'f':
      cursor_ = WordAfter(cursor_);
      return;
    case 'd':
      return Erase(cursor_, WordAfter(cursor_));
    case 0x7f:
      return Erase(WordBefore(cursor_), cursor_);
    default:
      return;
  }
}

void LineEditor::Sequence() {
  if (sequence_ == kPasteBegin) {
    paste_.clear();
    state_ = State::kPaste;
  } else if (sequence_ == "A") {
    Recall(recalled_ - 1);
  } else if (sequence_ == "B") {
    Recall(recalled_ + 1);
  } else if (sequence_ == "C") {
    cursor_ = After(text_, cursor_);
  } else if (sequence_ == "D") {
    cursor_ = Before(text_, cursor_);
  } else if (sequence_ == "1;5C" || sequence_ == "1;3C") {
    cursor_ = WordAfter(cursor_);
  } else if (sequence_ == "1;5D" || sequence_ == "1;3D") {
    cursor_ = WordBefore(cursor_);
  } else if (sequence_ == "H" || sequence_ == "1~" || sequence_ == "7~") {
    cursor_ = 0;
  } else if (sequence_ == "F" || sequence_ == "4~" || sequence_ == "8~") {
    cursor_ = text_.size();
  } else if (sequence_ == "3~") {
    Erase(cursor_, After(text_, cursor_));
  }
}

void LineEditor::PasteByte(char byte) {
  paste_.push_back(byte);
  if (byte == kPasteEnd.back() && paste_.ends_with(kPasteEnd)) {
    paste_.resize(paste_.size() - kPasteEnd.size());
    std::string lines;
    lines.reserve(paste_.size());
    for (size_t i = 0; i < paste_.size(); ++i) {
      if (paste_[i] != '\r')
        lines.push_back(paste_[i]);
      else if (i + 1 == paste_.size() || paste_[i + 1] != '\n')
        lines.push_back('\n');
    }
    state_ = State::kText;
    paste_.clear();
    Insert(lines);
  } else if (paste_.size() > 2 * kMessageBytesMax) {
    too_long_ = true;
    paste_.erase(0, paste_.size() - kPasteEnd.size());  // its end must still be seen
  }
}

void LineEditor::Insert(std::string_view text) {
  if (text_.size() + text.size() > kMessageBytesMax) too_long_ = true;
  if (too_long_) return;
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void LineEditor::Erase(size_t from, size_t to) {
  text_.erase(from, to - from);
  cursor_ = from;
}

size_t LineEditor::WordBefore(size_t at) const {
  while (at > 0 && IsBlank(text_[at - 1])) --at;
  while (at > 0 && !IsBlank(text_[at - 1])) --at;
  return at;
}

size_t LineEditor::WordAfter(size_t at) const {
  while (at < text_.size() && IsBlank(text_[at])) ++at;
  while (at < text_.size() && !IsBlank(text_[at])) ++at;
  return at;
}

void LineEditor::Recall(size_t index) {
  if (index > history_.size()) return;  // also one before the first
  if (recalled_ == history_.size()) draft_ = text_;
  text_ = index == history_.size() ? draft_ : history_[index];
  recalled_ = index;
  cursor_ = text_.size();
}

std::string LineEditor::Take() {
  std::string message = text_;
  if (!message.empty() && (history_.empty() || history_.back() != message)) {
    history_.push_back(message);
    if (history_.size() > kHistoryMessagesMax) history_.erase(history_.begin());
  }
  Reset();
  return message;
}

void LineEditor::Reset() {
  state_ = State::kText;
  text_.clear();
  cursor_ = 0;
  paste_.clear();
  draft_.clear();
  too_long_ = false;
  recalled_ = history_.size();
}

LineView VisiblePart(std::string_view text, size_t cursor, size_t columns) {
  size_t begin = cursor;
  size_t before = 0;
  while (begin > 0) {
    const size_t previous = Before(text, begin);
    const size_t wide = FirstCell(text.substr(previous)).columns;
    if (before + wide + 2 > columns) break;  // two ellipses
    before += wide;
    begin = previous;
  }
  size_t used = begin > 0 ? 1 : 0;
  LineView view{.text = std::string(begin > 0 ? kEllipsis : ""), .cursor_columns = used + before};
  for (size_t at = begin; at < text.size();) {
    const Cell cell = FirstCell(text.substr(at));
    if (used + cell.columns + 1 > columns) {
      view.text += kEllipsis;
      break;
    }
    view.text += cell.text;
    used += cell.columns;
    at += cell.bytes;
  }
  return view;
}

}  // namespace mneme::cli

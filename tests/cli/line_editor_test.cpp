// Keys and pastes against the message that a person means by them, and against what is shown of it.
#include "cli/line_editor.h"

#include <gtest/gtest.h>

namespace mneme::cli {
namespace {

using Event = LineEditor::Event;

// The message that `keys` and Enter make.
std::string Message(LineEditor& editor, const std::string& keys) {
  const std::string typed = keys + "\r";
  std::string_view bytes = typed;
  EXPECT_EQ(editor.Feed(bytes), Event::kMessage);
  EXPECT_TRUE(bytes.empty());
  return editor.Take();
}

std::string Message(const std::string& keys) {
  LineEditor editor;
  return Message(editor, keys);
}

std::string Paste(const std::string& text) { return "\033[200~" + text + "\033[201~"; }

TEST(LineEditorTest, EditsWhereTheCursorIs) {
  EXPECT_EQ(Message("hell\033[D\033[Dx\033[Cy"), "hexlyl");
  EXPECT_EQ(Message("bc\033[Ha\033[Fd"), "abcd");
  EXPECT_EQ(Message("bc\x01"
                    "a\x05"
                    "d"),
            "abcd");
  EXPECT_EQ(Message("abc\033[D\x7f"), "ac");
  EXPECT_EQ(Message("abc\033[H\033[3~\x04"), "c");
  EXPECT_EQ(Message("one two three\x17\x17 2"), "one  2");
  EXPECT_EQ(Message("one two\033b\x0b"), "one ");
  EXPECT_EQ(Message("one two\033[1;5D\x15"), "two");
}

TEST(LineEditorTest, MovesAndErasesWholeCharacters) {
  EXPECT_EQ(Message("\u00e9\u4e16x\033[D\033[D\x7f"), "\u4e16x");
  EXPECT_EQ(Message("\U0001f600\x7f"), "");
}

TEST(LineEditorTest, IgnoresKeysItDoesNotKnow) {
  EXPECT_EQ(Message("a\033[15~\033Pb\033[1;2P\x07"), "ab");
}

TEST(LineEditorTest, APasteIsTextUntilItsEnd) {
  EXPECT_EQ(Message(Paste("one\ntwo\rthree\r\nfour\t\x04\x1b[D\x7f\n")),
            "one\ntwo\nthree\nfour\t\x04\x1b[D\x7f\n");
  EXPECT_EQ(Message("ad\033[D" + Paste("b\nc")), "ab\ncd");
}

TEST(LineEditorTest, APasteMayArriveInAnyPieces) {
  LineEditor editor;
  const std::string typed = Paste("one\ntwo\033[201") + "\r";
  for (size_t i = 0; i < typed.size(); ++i) {
    std::string_view byte = std::string_view(typed).substr(i, 1);
    EXPECT_EQ(editor.Feed(byte), i + 1 == typed.size() ? Event::kMessage : Event::kNone);
  }
  EXPECT_EQ(editor.Take(), "one\ntwo\033[201");
}

TEST(LineEditorTest, LeavesWhatFollowsAMessageUnread) {
  LineEditor editor;
  std::string_view bytes = "one\ntwo\n";
  EXPECT_EQ(editor.Feed(bytes), Event::kMessage);
  EXPECT_EQ(bytes, "two\n");
  EXPECT_EQ(editor.Take(), "one");
}

TEST(LineEditorTest, AltEnterIsALineOfTheMessageAndCtrlVQuotes) {
  EXPECT_EQ(Message("one\033\rtwo\x16\x1b]"), "one\ntwo\x1b]");
}

TEST(LineEditorTest, EndsAtCtrlDOnlyWhereNothingIsTyped) {
  LineEditor editor;
  std::string_view bytes = "a\x04";
  EXPECT_EQ(editor.Feed(bytes), Event::kNone);
  editor.Reset();
  bytes = "\x04";
  EXPECT_EQ(editor.Feed(bytes), Event::kEnd);
}

TEST(LineEditorTest, BringsEarlierMessagesBack) {
  LineEditor editor;
  Message(editor, "one");
  Message(editor, Paste("two\nlines"));
  EXPECT_EQ(Message(editor, "\033[A"), "two\nlines");
  EXPECT_EQ(Message(editor, "\033[A\033[A\033[A!"), "one!");
  EXPECT_EQ(Message(editor, "dra\033[A\033[A\033[B\033[Bft"), "draft");
}

TEST(LineEditorTest, RefusesAMessageOverTheLimitWhole) {
  const std::string most(kMessageBytesMax, 'a');
  EXPECT_EQ(Message(most), most);
  EXPECT_EQ(Message(Paste(most)), most);
  for (const std::string& keys : {most + "b", Paste(most + "b"), Paste(most + most + most)}) {
    LineEditor editor;
    const std::string typed = keys + "\rnext\r";
    std::string_view bytes = typed;
    EXPECT_EQ(editor.Feed(bytes), Event::kTooLong);
    EXPECT_EQ(editor.Feed(bytes), Event::kMessage);
    EXPECT_EQ(editor.Take(), "next");
  }
}

TEST(VisiblePartTest, FitsAndShowsWhereTheCursorIs) {
  EXPECT_EQ(VisiblePart("abc", 3, 10).text, "abc");
  EXPECT_EQ(VisiblePart("abc", 1, 10).cursor_columns, 1u);
  EXPECT_EQ(VisiblePart("abcdefgh", 0, 5).text, "abcd\u2026");
  const LineView end = VisiblePart("abcdefgh", 8, 5);
  EXPECT_EQ(end.text, "\u2026fgh");
  EXPECT_EQ(end.cursor_columns, 4u);
}

TEST(VisiblePartTest, CountsColumnsAndObeysNoControlCharacter) {
  EXPECT_EQ(VisiblePart("a\nb\x1b\x7f\t.\xff", 0, 20).text, "a\u21b5b^[^? .\ufffd");
  EXPECT_EQ(VisiblePart("\u4e16\u754c", 3, 20).cursor_columns, 2u);
  EXPECT_EQ(VisiblePart("e\u0301x", 3, 20).cursor_columns, 1u);
  EXPECT_EQ(VisiblePart("\u4e16\u754c\u4e16", 0, 5).text, "\u4e16\u754c\u2026");
}

}  // namespace
}  // namespace mneme::cli

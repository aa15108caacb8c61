// What people see of numbers and of text that would command their terminal.
#include "cli/terminal.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace mneme::cli {
namespace {

TEST(TerminalTest, ShowsControlCharactersAndKeepsLines) {
  EXPECT_EQ(Printable("plain\ttext\n"), "plain\ttext\n");
  EXPECT_EQ(Printable("\x1b[2Jgone\r\x07\x7f"), "\\x1b[2Jgone\\x0d\\x07\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");
  EXPECT_EQ(Printable("caf\xc3\xa9 \xe2\x9c\x93 \xc2\xa0"), "caf\xc3\xa9 \xe2\x9c\x93 \xc2\xa0");
}

TEST(TerminalTest, WritesNumbersForPeople) {
  EXPECT_EQ(Count(0), "0");
  EXPECT_EQ(Count(999), "999");
  EXPECT_EQ(Count(1000), "1,000");
  EXPECT_EQ(Count(30112), "30,112");
  EXPECT_EQ(Count(16000000), "16,000,000");
  EXPECT_EQ(CountOf(0, "turn"), "0 turns");
  EXPECT_EQ(CountOf(1, "turn"), "1 turn");
  EXPECT_EQ(CountOf(30112, "turn"), "30,112 turns");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(1536), "1.5 KiB");
  EXPECT_EQ(Bytes(uint64_t{5} << 30), "5.0 GiB");
}

TEST(TerminalTest, ShortensWhatWouldFillTheScreen) {
  const auto lines = [](int count) {
    std::string text;
    for (int i = 1; i <= count; ++i) text += (i == 1 ? "" : "\n") + std::to_string(i);
    return text;
  };
  EXPECT_EQ(Shortened(""), "");
  EXPECT_EQ(Shortened(lines(10)), lines(10));
  EXPECT_EQ(Shortened(lines(11)), "1\n2\n3\n(11 lines, 23 bytes)");
  EXPECT_EQ(Shortened(std::string(1000, 'a')), std::string(1000, 'a'));
  EXPECT_EQ(Shortened(std::string(1001, 'a')),
            std::string(300, 'a') + "...\n(1 line, 1,001 bytes)");
  // Not within a character: the first is one byte, the others have two.
  std::string letters = "a";
  for (int i = 0; i < 600; ++i) letters += "\u00e9";
  EXPECT_EQ(Shortened(letters), letters.substr(0, 299) + "...\n(1 line, 1,201 bytes)");
  EXPECT_EQ(LinesAndBytes("a\nb\n"), "2 lines, 4 bytes");
}

TEST(TerminalTest, WritesMomentsWithTheirZone) {
  setenv("TZ", "CET-1", /*overwrite=*/1);
  tzset();
  EXPECT_EQ(Moment(1'796'000'400'000'000), "2026-11-30 02:00 CET");
  unsetenv("TZ");
  tzset();
  EXPECT_EQ(Moment(0), "never");
}

}  // namespace
}  // namespace mneme::cli

// The tokenizer against the `tokenizers` library on 22,000 stored lines, against NFC as utf8proc
// spells it in one call, and against itself where two ways must agree: streamed and at once, both
// spellings of merges.
#include "model/tokenizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/utf8.h"
#include "model/unicode_versions.h"
#include "tests/model/tokenizer_case.h"

namespace mneme::model {
namespace {

std::string Nfc(std::string_view text) {
  utf8proc_uint8_t* normal = nullptr;
  const auto bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &normal,
                   static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  EXPECT_GE(bytes, 0);
  std::string result(reinterpret_cast<const char*>(normal), static_cast<size_t>(bytes));
  std::free(normal);
  return result;
}

std::string Spell(uint32_t point) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes.data());
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count)};
}

bool HoldsCharacterUnknownToNfc(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t character = 0;
    at += static_cast<size_t>(
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &character));
    if (IsUnknownToNfc(static_cast<char32_t>(character))) return true;
  }
  return false;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text,
                            SpecialTokens special = SpecialTokens::kAsText) {
  auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids) << ids.error().message();
  return ids ? *std::move(ids) : std::vector<int32_t>{};
}

void ExpectGolden(std::string_view name, size_t lines_min, SpecialTokens special) {
  const std::vector<GoldenLine> lines = ReadGoldenLines(name);
  ASSERT_GE(lines.size(), lines_min);
  for (const GoldenLine& line : lines) {
    ASSERT_EQ(Encode(GoldenTokenizer(), line.text, special), line.ids)
        << testing::PrintToString(line.text);
  }
}

TEST(TokenizerTest, EncodesEveryGoldenLineAsTheLibraryDoes) {
  ExpectGolden("tokenizer/as_text.bin", 20000, SpecialTokens::kAsText);
}

TEST(TokenizerTest, RecognisesAddedTokensAsTheLibraryDoes) {
  ExpectGolden("tokenizer/recognised.bin", 1000, SpecialTokens::kRecognised);
}

TEST(TokenizerTest, EncodesEveryCodePointAsTheLibraryDoes) {
  const std::string golden = ReadFile(GoldenPath("tokenizer/every_code_point.bin"));
  ASSERT_EQ(golden.size(), 0x1100 * sizeof(uint64_t));
  for (uint32_t block = 0; block < 0x1100; ++block) {
    std::string text;
    for (uint32_t point = block * 256; point < (block + 1) * 256; ++point) {
      if (point >= 0xD800 && point < 0xE000) continue;
      const std::string character = Spell(point);
      text += "a" + character + "\u0301b \u0323" + character + character + "7\n";
    }
    uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
    for (const int32_t id : Encode(GoldenTokenizer(), text)) {
      for (int shift = 0; shift < 32; shift += 8) {
        hash = (hash ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x100000001B3;
      }
    }
    uint64_t expected = 0;
    std::memcpy(&expected, golden.data() + block * sizeof(expected), sizeof(expected));
    ASSERT_EQ(hash, expected) << fmt::format("U+{:04X} and the 255 after it", block * 256);
  }
}

TEST(TokenizerTest, GivesTheSameIdsForManyLinesAtOnce) {
  // One long text, so that fragments recur and are taken from memory; a line break after a letter
  // is always a cut, so the ids of the whole are those of its parts.
  std::vector<int32_t> expected;
  std::string text;
  for (const GoldenLine& line : ReadGoldenLines("tokenizer/as_text.bin")) {
    const std::string whole = "x" + line.text + "x\n";
    const auto ids = Encode(GoldenTokenizer(), whole);
    expected.insert(expected.end(), ids.begin(), ids.end());
    text += whole;
  }
  EXPECT_EQ(Encode(GoldenTokenizer(), text), expected);
}

TEST(TokenizerTest, DecodingGivesTheTextInNfc) {
  size_t compared = 0;
  const std::vector<GoldenLine> lines = ReadGoldenLines("tokenizer/as_text.bin");
  for (const GoldenLine& line : lines) {
    if (HoldsCharacterUnknownToNfc(line.text)) continue;  // there the library is not utf8proc
    ++compared;
    ASSERT_EQ(GoldenTokenizer().Decode(line.ids), Nfc(line.text))
        << testing::PrintToString(line.text);
  }
  EXPECT_GT(compared, lines.size() * 98 / 100);
}

TEST(TokenizerTest, EncodesBothSpellingsOfMergesAlike) {
  boost::json::object file = SmallTokenizerFile(300);
  const auto pairs = Tokenizer::Parse(boost::json::serialize(file));
  ASSERT_TRUE(pairs) << pairs.error().message();
  for (boost::json::value& merge : file["model"].as_object()["merges"].as_array()) {
    const boost::json::array pair = merge.as_array();
    std::string text(pair[0].as_string());
    text += ' ';
    text += std::string(pair[1].as_string());
    merge = text;
  }
  const auto spaced = Tokenizer::Parse(boost::json::serialize(file));
  ASSERT_TRUE(spaced) << spaced.error().message();
  for (const GoldenLine& line : ReadGoldenLines("tokenizer/recognised.bin")) {
    ASSERT_EQ(Encode(*pairs, line.text), Encode(*spaced, line.text));
  }
}

TEST(TokenizerTest, NoTextEncodedAsTextGivesAnAddedToken) {
  const Tokenizer& tokenizer = GoldenTokenizer();
  const int32_t first_added = *tokenizer.IdOf("<|endoftext|>");
  for (int32_t id = first_added; id < tokenizer.vocab_size(); ++id) {
    const std::string content(tokenizer.TextOf(id));
    ASSERT_EQ(tokenizer.IdOf(content), id);
    for (const std::string& text : {content, "a" + content + "b", content + content}) {
      const auto ids = Encode(tokenizer, text);
      EXPECT_LT(*std::max_element(ids.begin(), ids.end()), first_added) << text;
      EXPECT_EQ(tokenizer.Decode(ids), text);
    }
  }
}

TEST(TokenizerTest, FindsAddedTokensByContentOnly) {
  const Tokenizer& tokenizer = GoldenTokenizer();
  EXPECT_EQ(tokenizer.IdOf("<|im_start|>"), 4097);
  EXPECT_EQ(tokenizer.IdOf("</think>"), 4121);
  EXPECT_EQ(tokenizer.IdOf("the"), std::nullopt);
  EXPECT_EQ(tokenizer.IdOf(""), std::nullopt);
  EXPECT_TRUE(tokenizer.IsSpecial(4097));
  EXPECT_FALSE(tokenizer.IsSpecial(4121));
  EXPECT_FALSE(tokenizer.IsSpecial(-1));
  EXPECT_FALSE(tokenizer.IsSpecial(tokenizer.vocab_size()));
}

TEST(TokenizerTest, HidesSpecialTokensOnRequest) {
  const Tokenizer& tokenizer = GoldenTokenizer();
  const auto ids = Encode(tokenizer, "<|im_start|>a<think>b<|im_end|>", SpecialTokens::kRecognised);
  EXPECT_EQ(tokenizer.Decode(ids), "<|im_start|>a<think>b<|im_end|>");
  EXPECT_EQ(tokenizer.Decode(ids, SpecialText::kHide), "a<think>b");
}

TEST(TokenizerTest, RefusesTextThatIsNotUtf8) {
  for (const std::string_view text : {"ab\x80", "ab\xC0\x80", "ab\xE2\x82", "ab\xED\xA0\x80",
                                      "ab\xF4\x90\x80\x80", "ab\xFF", "ab\xE0\x9F\xBFzz"}) {
    for (const auto special : {SpecialTokens::kAsText, SpecialTokens::kRecognised}) {
      const auto ids = GoldenTokenizer().Encode(text, special);
      ASSERT_FALSE(ids);
      EXPECT_EQ(ids.error().code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(ids.error().message(),
                fmt::format("encode text: byte 2 of {} is not UTF-8", text.size()));
    }
  }
}

TEST(TokenizerTest, RefusesTextThatIsTooLong) {
  const std::string text(kTextBytesMax + 1, ' ');
  const auto ids = GoldenTokenizer().Encode(text, SpecialTokens::kAsText);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().reason(), Reason::kTooLarge);
  EXPECT_EQ(ids.error().message(), "encode text: expected at most 16777216 bytes, found 16777217");
}

TEST(TokenizerTest, EmptyTextHasNoTokens) {
  EXPECT_TRUE(Encode(GoldenTokenizer(), "").empty());
  EXPECT_TRUE(Encode(GoldenTokenizer(), "", SpecialTokens::kRecognised).empty());
  EXPECT_EQ(GoldenTokenizer().Decode({}), "");
}

// A megabyte that is one fragment, or one run that must be sorted, or one that the pattern could
// scan again and again. Anything quadratic takes hours here; the bound is for the slowest build.
TEST(TokenizerTest, AMegabyteOfOneKindTakesSeconds) {
  std::mt19937 random(5);
  std::string letters;
  std::string marks;
  while (letters.size() < kMiB) letters += static_cast<char>('a' + random() % 26);
  while (marks.size() < kMiB) marks += random() % 2 == 0 ? "\u0301" : "\u0323";
  const std::string spaces(kMiB, ' ');
  for (const std::string& text :
       {std::string(kMiB, 'a'), letters, "e" + marks, spaces, "\n" + spaces + "x",
        std::string(kMiB, '\n'), std::string(kMiB, '='), std::string(kMiB, '<')}) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = Encode(GoldenTokenizer(), text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    if (text[0] != 'e') {
      EXPECT_EQ(GoldenTokenizer().Decode(ids), text);
    }
  }
}

TEST(TextStreamTest, GivesTheSameTextAsDecodeAndNeverHalfACharacter) {
  const Tokenizer& tokenizer = GoldenTokenizer();
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    // Bytes alone make most sequences malformed somewhere; other ids mend them.
    std::vector<int32_t> ids(1 + random() % 40);
    for (int32_t& id : ids) {
      const uint32_t bound =
          random() % 2 == 0 ? 256 : static_cast<uint32_t>(tokenizer.vocab_size());
      id = static_cast<int32_t>(random() % bound);
    }
    TextStream stream(tokenizer);
    std::string text;
    std::string bytes;
    for (const int32_t id : ids) {
      const std::string_view part = stream.Push(id);
      ASSERT_EQ(ValidUtf8Bytes(part), part.size());
      text += part;
      bytes += tokenizer.TextOf(id);
    }
    text += stream.Finish();
    std::string expected;
    if (AppendCharacters(bytes, expected) > 0) expected += kReplacement;
    ASSERT_EQ(text, expected);
    ASSERT_EQ(text, tokenizer.Decode(ids));
  }
}

TEST(TextStreamTest, HoldsAnEmojiBackUntilItIsWhole) {
  const Tokenizer& tokenizer = GoldenTokenizer();
  const std::string emoji = "\U0001F9A4";  // in no token as a whole
  const auto ids = Encode(tokenizer, emoji);
  ASSERT_GT(ids.size(), 1u);
  TextStream stream(tokenizer);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.Push(ids[i]), "");
  EXPECT_EQ(stream.Push(ids.back()), emoji);
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStreamTest, SaysWhereACharacterStayedUnfinished) {
  const Tokenizer& tokenizer = GoldenTokenizer();
  const auto ids = Encode(tokenizer, "\U0001F9A4");
  TextStream stream(tokenizer);
  EXPECT_EQ(stream.Push(ids[0]), "");
  EXPECT_EQ(stream.Finish(), kReplacement);
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.Push(ids[0]), "");
  EXPECT_EQ(stream.Push(-1), std::string(kReplacement) + std::string(kReplacement));
  EXPECT_EQ(stream.Push(tokenizer.vocab_size()), kReplacement);
}

}  // namespace
}  // namespace mneme::model

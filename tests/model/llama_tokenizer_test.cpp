// Tokenizers in the form of Llama 2 against the `tokenizers` library on 10,000 stored lines,
// against themselves streamed and cut, and files that say something else refused by field.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "model/chat_template.h"
#include "model/tokenizer_file.h"
#include "tests/model/tokenizer_case.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

std::string FormPath(const std::string& name) { return GoldenPath("llama_tokenizer/" + name); }

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text,
                            SpecialTokens special = SpecialTokens::kAsText) {
  auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids) << ids.error().message();
  return ids ? *std::move(ids) : std::vector<int32_t>{};
}

class LlamaTokenizerTest : public ::testing::TestWithParam<const char*> {
 protected:
  LlamaTokenizerTest()
      : file_(json::parse(ReadFile(FormPath(std::string(GetParam()) + ".json"))).as_object()),
        tokenizer_(*Tokenizer::Load(FormPath(std::string(GetParam()) + ".json"))) {}

  std::vector<GoldenLine> Lines(const char* what) const {
    return ReadGoldenLines(std::string("llama_tokenizer/") + GetParam() + what);
  }

  json::object file_;
  Tokenizer tokenizer_;
};

TEST_P(LlamaTokenizerTest, EncodesEveryGoldenLineAsTheLibraryDoes) {
  const auto lines = Lines("_as_text.bin");
  ASSERT_GE(lines.size(), 4000u);
  for (const GoldenLine& line : lines)
    ASSERT_EQ(Encode(tokenizer_, line.text), line.ids) << testing::PrintToString(line.text);
}

TEST_P(LlamaTokenizerTest, RecognisesAddedTokensAsTheLibraryDoes) {
  const auto lines = Lines("_recognised.bin");
  ASSERT_GE(lines.size(), 1000u);
  for (const GoldenLine& line : lines)
    ASSERT_EQ(Encode(tokenizer_, line.text, SpecialTokens::kRecognised), line.ids)
        << testing::PrintToString(line.text);
}

TEST_P(LlamaTokenizerTest, DecodesIdsAsTheLibraryDoes) {
  const auto lines = Lines("_decoded.bin");
  ASSERT_GE(lines.size(), 1000u);
  for (const GoldenLine& line : lines) ASSERT_EQ(tokenizer_.Decode(line.ids), line.text);
}

TEST_P(LlamaTokenizerTest, DecodesWhatItEncoded) {
  for (const GoldenLine& line : Lines("_as_text.bin")) {
    // U+2581 is how these vocabularies write a space, so it comes back as one. The newer form adds
    // no space before a text that begins with one, and loses that one.
    if (line.text.find("\u2581") != std::string::npos) continue;
    if (GetParam() == std::string("metaspace") && line.text.starts_with(' ')) continue;
    ASSERT_EQ(tokenizer_.Decode(line.ids), line.text);
    TextStream stream(tokenizer_);
    std::string text;
    for (const int32_t id : line.ids) text += stream.Push(id);
    text += stream.Finish();
    ASSERT_EQ(text, line.text);
  }
}

TEST_P(LlamaTokenizerTest, EncodesALongTextAsItsLinesWould) {
  // The library's own answer to a text of 200 lines, by joining them to one line each of which
  // begins where no token can reach.
  std::string text;
  for (const GoldenLine& line : Lines("_as_text.bin")) {
    if (text.size() > 20000) break;
    text += line.text + " ";
  }
  const TokenizerFile whole = *ParseTokenizer(json::serialize(file_));
  EXPECT_EQ(whole.characters->cuts_at_spaces, GetParam() == std::string("llama2"));
  // Uncut, by a vocabulary that has one token across words: it stands in no text.
  json::object across = file_;
  json::object& model = across["model"].as_object();
  const auto next = static_cast<int64_t>(model["vocab"].as_object().size());
  model["vocab"].as_object()["\u00b5\u2581"] = next;
  const auto uncut = Tokenizer::Parse(json::serialize(across));
  ASSERT_TRUE(uncut) << uncut.error().message();
  EXPECT_EQ(Encode(*uncut, text), Encode(tokenizer_, text));
}

TEST_P(LlamaTokenizerTest, BeginsASessionWithTheTemplatesTokens) {
  EXPECT_EQ(tokenizer_.start_ids(), std::vector<int32_t>{1});
  EXPECT_EQ(tokenizer_.IdOf("</s>"), 2);
  EXPECT_TRUE(Encode(tokenizer_, "").empty());
  EXPECT_TRUE(GoldenTokenizer().start_ids().empty());
}

TEST_P(LlamaTokenizerTest, TextLikeABytesNameStaysText) {
  const std::vector<int32_t> ids = Encode(tokenizer_, "<0x41>");
  EXPECT_GT(ids.size(), 1u);
  EXPECT_EQ(tokenizer_.Decode(ids), "<0x41>");
  EXPECT_EQ(tokenizer_.TextOf(3 + 0x41), "A");
}

TEST_P(LlamaTokenizerTest, HasNoChatFormAndSaysSo) {
  EXPECT_FALSE(ChatTemplate::Make(tokenizer_));
  const auto chat = ChatTemplate::MakeIfAny(tokenizer_);
  ASSERT_TRUE(chat);
  EXPECT_FALSE(chat->has_chat());
  EXPECT_TRUE(ChatTemplate::MakeIfAny(GoldenTokenizer())->has_chat());
  const auto prompt = chat->GenerationPrompt(LogEnd::kBetweenTurns, false);
  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(prompt.error().message(),
            "chat template: the model has no chat form, since its tokenizer has no token "
            "<|im_start|>; send text or ids and ask for the raw prompt form");
  const ChatMessage message = {
      .role = ChatRole::kUser, .content = "x", .reasoning = {}, .tool_calls = {}};
  EXPECT_FALSE(chat->Render({&message, 1}, {}));
  const std::vector<int32_t> ids = {1, 5};
  EXPECT_EQ(chat->EndOf(ids), LogEnd::kBetweenTurns);
  EXPECT_EQ(chat->EndOf({}), LogEnd::kEmpty);
  EXPECT_FALSE(chat->IsStop(-1));
}

INSTANTIATE_TEST_SUITE_P(Forms, LlamaTokenizerTest, ::testing::Values("llama2", "metaspace"),
                         [](const auto& test) { return std::string(test.param); });

struct FormRefusal {
  const char* what;
  const char* file;
  std::function<void(json::object&)> edit;
  const char* message;
};

json::object& Step(json::object& file, const char* part, const char* list, size_t index) {
  return file[part].as_object()[list].as_array()[index].as_object();
}

TEST(LlamaTokenizerFileTest, RefusesOtherForms) {
  const std::vector<FormRefusal> refusals = {
      {"another normalizer", "llama2",
       [](auto& f) { Step(f, "normalizer", "normalizers", 0)["type"] = "NFKC"; },
       "normalizer.normalizers[0].type: expected \"Prepend\", found another string of 4 bytes"},
      {"another replacement", "llama2",
       [](auto& f) { Step(f, "normalizer", "normalizers", 1)["content"] = "_"; }, nullptr},
      {"both ways of marking spaces", "llama2",
       [](auto& f) {
         f["pre_tokenizer"] = json::object{{"type", "Metaspace"}};
       },
       "pre_tokenizer: expected null, found an object"},
      {"split", "metaspace", [](auto& f) { f["pre_tokenizer"].as_object()["split"] = true; },
       "pre_tokenizer.split: expected false, found true"},
      {"split by default", "metaspace",
       [](auto& f) { f["pre_tokenizer"].as_object().erase("split"); },
       "pre_tokenizer.split: expected false, found nothing"},
      {"another scheme", "metaspace",
       [](auto& f) { f["pre_tokenizer"].as_object()["prepend_scheme"] = "sometimes"; },
       "pre_tokenizer.prepend_scheme: expected \"first\", \"always\" or \"never\", found a string"},
      {"two spaces stripped", "llama2",
       [](auto& f) { Step(f, "decoder", "decoders", 3)["start"] = 2; },
       "decoder.decoders[3].start: expected 1, found an integer"},
      {"another decoder", "llama2",
       [](auto& f) {
         f["decoder"] = json::object{{"type", "ByteLevel"}};
       },
       nullptr},
      {"an end after the text", "llama2",
       [](auto& f) {
         auto& single = f["post_processor"].as_object()["single"].as_array();
         single.push_back(single[0]);
       },
       nullptr},
      {"a byte without a token", "llama2",
       [](auto& f) {
         auto& vocab = f["model"].as_object()["vocab"].as_object();
         vocab.erase("<0x0A>");
         vocab["<0x0a>"] = 13;
       },
       "model.vocab: byte 0x0a has no token"},
      {"no space", "llama2",
       [](auto& f) {
         auto& vocab = f["model"].as_object()["vocab"].as_object();
         const json::value id = vocab["\u2581"];
         vocab.erase("\u2581");
         vocab["\u2581\u2581\u2581\u2581\u2581\u2581\u2581\u2581\u2581x"] = id;
       },
       "model.vocab: U+2581, the space, has no token"},
      {"merges ignored", "llama2", [](auto& f) { f["model"].as_object()["ignore_merges"] = true; },
       "model.ignore_merges: expected false, found true"},
  };
  for (const FormRefusal& refusal : refusals) {
    json::object file =
        json::parse(ReadFile(FormPath(std::string(refusal.file) + ".json"))).as_object();
    ASSERT_TRUE(ParseTokenizer(json::serialize(file)));
    refusal.edit(file);
    const auto read = ParseTokenizer(json::serialize(file));
    ASSERT_FALSE(read) << refusal.what;
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
    const std::string wanted =
        refusal.message == nullptr ? read.error().message() : refusal.message;
    EXPECT_EQ(read.error().message(), wanted) << refusal.what;
  }
}

}  // namespace
}  // namespace mneme::model

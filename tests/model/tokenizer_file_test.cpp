// tokenizer.json files that say something else than the form the tokenizer has: each is refused
// with field, expected and found. And 2,000 damaged ones: refused, or read and then consistent.
#include "model/tokenizer_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <random>

#include "base/file_error.h"
#include "base/utf8.h"
#include "tests/model/tokenizer_case.h"

namespace mneme::model {
namespace {

namespace json = boost::json;

constexpr size_t kMerges = 40;  // so there are 256 + 40 tokens and 28 added ones: 324 in all

TEST(TokenizerFileTest, ReadsTheWholeFile) {
  const auto file = ParseTokenizer(json::serialize(SmallTokenizerFile(kMerges)));
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->token_bytes.size(), 256 + kMerges + 28);
  EXPECT_EQ(file->merges.size(), kMerges);
  ASSERT_EQ(file->added.size(), 28u);
  EXPECT_EQ(file->added[1].content, "<|im_start|>");
  EXPECT_EQ(file->added[1].id, 297);
  EXPECT_TRUE(file->added[1].special);
  EXPECT_EQ(file->token_bytes[297], "<|im_start|>");
  for (size_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(file->token_bytes[static_cast<size_t>(file->byte_ids[byte])],
              std::string(1, static_cast<char>(byte)));
  }
  for (const BpeMerge& merge : file->merges) {
    EXPECT_EQ(file->token_bytes[static_cast<size_t>(merge.joined)],
              file->token_bytes[static_cast<size_t>(merge.left)] +
                  file->token_bytes[static_cast<size_t>(merge.right)]);
  }
}

TEST(TokenizerFileTest, AcceptsWhatAnOlderLibraryWrote) {
  json::object file = SmallTokenizerFile(kMerges);
  json::object& model = file["model"].as_object();
  model.erase("ignore_merges");
  model.erase("byte_fallback");
  model["continuing_subword_prefix"] = nullptr;
  model["end_of_word_suffix"] = nullptr;
  file["post_processor"] = nullptr;
  // A trainer that was given its special tokens puts them into the vocabulary as well.
  model["vocab"].as_object()["<|endoftext|>"] = 256 + kMerges;
  const auto read = ParseTokenizer(json::serialize(file));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->token_bytes.size(), 256 + kMerges + 28);
}

struct Refusal {
  const char* what;
  std::function<void(json::object&)> edit;
  const char* message;
};

json::object& Added(json::object& file, size_t index) {
  return file["added_tokens"].as_array()[index].as_object();
}
json::object& Model(json::object& file) { return file["model"].as_object(); }
json::object& Vocab(json::object& file) { return Model(file)["vocab"].as_object(); }
json::array& Merges(json::object& file) { return Model(file)["merges"].as_array(); }
json::object& Step(json::object& file, size_t index) {
  return file["pre_tokenizer"].as_object()["pretokenizers"].as_array()[index].as_object();
}

std::vector<Refusal> ShapeRefusals() {
  return {
      {"truncation",
       [](auto& f) {
         f["truncation"] = json::object{{"max_length", 5}};
       },
       "truncation: expected null, found an object"},
      {"padding", [](auto& f) { f["padding"] = true; }, "padding: expected null, found true"},
      {"no normalizer", [](auto& f) { f["normalizer"] = nullptr; },
       "normalizer.type: expected \"NFC\", found nothing"},
      {"another normalizer",
       [](auto& f) {
         f["normalizer"] = json::object{{"type", "NFKC"}};
       },
       "normalizer.type: expected \"NFC\", found another string of 4 bytes"},
      {"another pre-tokenizer",
       [](auto& f) {
         f["pre_tokenizer"] = json::object{{"type", 7}};
       },
       "pre_tokenizer.type: expected \"Sequence\", found an integer"},
      {"one step",
       [](auto& f) { f["pre_tokenizer"].as_object()["pretokenizers"].as_array().pop_back(); },
       "pre_tokenizer.pretokenizers: expected 2 steps, found 1"},
      {"another pattern", [](auto& f) { Step(f, 0)["pattern"].as_object()["Regex"] = "(a+)+b"; },
       nullptr},
      {"removed", [](auto& f) { Step(f, 0)["behavior"] = "Removed"; },
       "pre_tokenizer.pretokenizers[0].behavior: expected \"Isolated\", found another string of 7 "
       "bytes"},
      {"inverted", [](auto& f) { Step(f, 0)["invert"] = true; },
       "pre_tokenizer.pretokenizers[0].invert: expected false, found true"},
      {"prefix space", [](auto& f) { Step(f, 1)["add_prefix_space"] = true; },
       "pre_tokenizer.pretokenizers[1].add_prefix_space: expected false, found true"},
      {"own pattern", [](auto& f) { Step(f, 1).erase("use_regex"); },
       "pre_tokenizer.pretokenizers[1].use_regex: expected false, found nothing"},
      {"no decoder", [](auto& f) { f.erase("decoder"); },
       "decoder.type: expected \"ByteLevel\", found nothing"},
      {"a template",
       [](auto& f) {
         f["post_processor"] = json::object{{"type", "Template"}};
       },
       "post_processor.type: expected \"ByteLevel\", found another string of 8 bytes"},
      {"unigram", [](auto& f) { Model(f)["type"] = "Unigram"; },
       "model.type: expected \"BPE\", found another string of 7 bytes"},
      {"dropout", [](auto& f) { Model(f)["dropout"] = 0.1; },
       "model.dropout: expected null or 0.0, found a number"},
      {"suffix", [](auto& f) { Model(f)["end_of_word_suffix"] = "</w>"; },
       "model.end_of_word_suffix: expected null or an empty string, found a string"},
      {"byte fallback", [](auto& f) { Model(f)["byte_fallback"] = true; },
       "normalizer.type: expected \"Sequence\", found another string of 3 bytes"},
      {"ignored merges", [](auto& f) { Model(f)["ignore_merges"] = true; },
       "model.ignore_merges: expected false, found true"},
  };
}

std::vector<Refusal> TableRefusals() {
  return {
      {"added is no list", [](auto& f) { f["added_tokens"] = "x"; },
       "added_tokens: expected an array, found a string"},
      {"added is no object", [](auto& f) { f["added_tokens"].as_array()[3] = 1; },
       "added_tokens[3]: expected an object, found an integer"},
      {"no id", [](auto& f) { Added(f, 2).erase("id"); },
       "added_tokens[2].id: expected an id below 1052672, found nothing"},
      {"negative id", [](auto& f) { Added(f, 2)["id"] = -1; },
       "added_tokens[2].id: expected an id below 1052672, found -1"},
      {"id above the end", [](auto& f) { Added(f, 27)["id"] = 324; },
       "added_tokens: expected ids below 324, since there are that many tokens in all, found 324"},
      {"id of a byte", [](auto& f) { Added(f, 27)["id"] = 5; }, "added_tokens: id 5 is used twice"},
      {"empty content", [](auto& f) { Added(f, 0)["content"] = ""; },
       "added_tokens[0].content: expected 1 to 1024 bytes, found 0"},
      {"long content", [](auto& f) { Added(f, 0)["content"] = std::string(1025, 'x'); },
       "added_tokens[0].content: expected 1 to 1024 bytes, found 1025"},
      {"content twice", [](auto& f) { Added(f, 5)["content"] = "<|im_start|>"; },
       "added_tokens[5].content: the same as added_tokens[1].content"},
      {"strips", [](auto& f) { Added(f, 4)["rstrip"] = true; },
       "added_tokens[4].rstrip: expected false, found true"},
      {"no flag", [](auto& f) { Added(f, 4).erase("special"); },
       "added_tokens[4].special: expected true or false, found nothing"},
      {"vocab is no object", [](auto& f) { Model(f)["vocab"] = json::array{}; },
       "model.vocab: expected an object, found an array"},
      {"id is no integer", [](auto& f) { Vocab(f)["a"] = 1.5; },
       "model.vocab value: expected an id below 324, found a number"},
      {"huge id", [](auto& f) { Vocab(f)["a"] = uint64_t{1} << 63; },
       "model.vocab value: expected an id below 324, found an integer"},
      {"id twice", [](auto& f) { Vocab(f)["a"] = Vocab(f)["b"]; },
       "model.vocab: id 65 is used twice"},
      {"not byte-level", [](auto& f) { Vocab(f)["\u4f60"] = 324; },
       "model.vocab: token 324 is not the byte-level text of 1 to 1024 bytes"},
      {"empty token", [](auto& f) { Vocab(f)[""] = 324; },
       "model.vocab: token 324 is not the byte-level text of 1 to 1024 bytes"},
      {"a byte missing",
       [](auto& f) {
         Vocab(f)["zqzq"] = Vocab(f)["\u0100"];
         Vocab(f).erase("\u0100");
       },
       "model.vocab: byte 0x00 has no token"},
      {"another id by content", [](auto& f) { Vocab(f)["<|im_end|>"] = 297; },
       "model.vocab: token 297 is added token 298 by its content"},
      {"a byte as added token",
       [](auto& f) {
         Added(f, 0)["content"] = "a";
         Added(f, 0)["id"] = Vocab(f)["a"];
         Vocab(f)["zqzq"] = 296;
       },
       "model.vocab: byte 0x61 has no token"},
      {"merges are no list", [](auto& f) { Model(f)["merges"] = nullptr; },
       "model.merges: expected an array, found null"},
      {"merge of three",
       [](auto& f) {
         Merges(f)[3] = json::array{"a", "b", "c"};
       },
       "model.merges[3]: expected \"a b\" or [\"a\", \"b\"] of two tokens of the vocabulary, found "
       "an array"},
      {"merge of one", [](auto& f) { Merges(f)[3] = "ab"; },
       "model.merges[3]: expected \"a b\" or [\"a\", \"b\"] of two tokens of the vocabulary, found "
       "a string"},
      {"merge of unknowns", [](auto& f) { Merges(f)[3] = "a zz"; },
       "model.merges[3]: expected \"a b\" or [\"a\", \"b\"] of two tokens of the vocabulary, found "
       "a text that is none"},
      {"merge to an unknown",
       [](auto& f) {
         Merges(f)[3] = json::array{"q", "z"};
       },
       "model.merges[3]: tokens 80 and 89 joined are an unknown text, not a token of the "
       "vocabulary"},
      {"merge to an added token",
       [](auto& f) {
         Added(f, 0)["content"] = "qz";
         Merges(f)[3] = "q z";
       },
       "model.merges[3]: tokens 80 and 89 joined are an added token, not a token of the "
       "vocabulary"},
      {"merge twice", [](auto& f) { Merges(f)[9] = Merges(f)[4]; },
       "model.merges: merge 9 joins the same pair as merge 4"},
  };
}

void ExpectRefused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    json::object file = SmallTokenizerFile(kMerges);
    refusal.edit(file);
    const auto tokenizer = Tokenizer::Parse(json::serialize(file));
    ASSERT_FALSE(tokenizer) << refusal.what;
    EXPECT_EQ(tokenizer.error().code(), ErrorCode::kInvalidArgument);
    const std::string pattern = fmt::format(
        "pre_tokenizer.pretokenizers[0].pattern.Regex: expected \"{}\", found another string of 6 "
        "bytes",
        kPreTokenizerRegex);
    EXPECT_EQ(tokenizer.error().message(), refusal.message ? refusal.message : pattern)
        << refusal.what;
  }
}

TEST(TokenizerFileTest, RefusesAnotherKindOfTokenizer) { ExpectRefused(ShapeRefusals()); }

TEST(TokenizerFileTest, RefusesTablesThatDoNotFitTogether) { ExpectRefused(TableRefusals()); }

TEST(TokenizerFileTest, RefusesWhatIsNotJson) {
  const std::string file = json::serialize(SmallTokenizerFile(kMerges));
  for (const std::string& text :
       {std::string(), std::string("nonsense"), file + "{}", file.substr(0, file.size() - 1),
        std::string(100000, '['), std::string("{\"a\":\"\xFF\"}")}) {
    const auto tokenizer = Tokenizer::Parse(text);
    ASSERT_FALSE(tokenizer);
    EXPECT_EQ(tokenizer.error().code(), ErrorCode::kCorruption);
    EXPECT_TRUE(tokenizer.error().message().starts_with("contents: expected "))
        << tokenizer.error().message();
  }
  EXPECT_FALSE(Tokenizer::Parse("[]"));
  EXPECT_FALSE(Tokenizer::Parse("null"));
}

TEST(TokenizerFileTest, NamesTheFile) {
  const std::string path = testing::TempDir() + "/tokenizer_file_test.json";
  const auto missing = Tokenizer::Load(path + ".none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message(),
            "tokenizer file: " + FileErrorText(path + ".none", "opened", ENOENT));
  const auto folder = Tokenizer::Load(testing::TempDir());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code(), ErrorCode::kInvalidArgument);

  std::ofstream(path) << "{}";
  const auto empty = Tokenizer::Load(path);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().message(),
            "tokenizer file " + path + ": normalizer.type: expected \"NFC\", found nothing");

  std::filesystem::resize_file(path, kTokenizerFileBytesMax + 1);  // sparse, so it costs nothing
  const auto large = Tokenizer::Load(path);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message(),
            "tokenizer file: " + path + ": expected 1 to 67108864 bytes, found 67108865");
  std::remove(path.c_str());
}

// Replaces a value somewhere in the tree by one of another kind, or removes or repeats it.
void DamageTree(json::value& root, std::mt19937& random) {
  json::value* at = &root;
  for (;;) {
    const bool deeper = random() % 8 != 0;
    if (deeper && at->is_object() && !at->get_object().empty()) {
      json::object& object = at->get_object();
      at = &(object.begin() + static_cast<std::ptrdiff_t>(random() % object.size()))->value();
    } else if (deeper && at->is_array() && !at->get_array().empty()) {
      at = &at->get_array()[random() % at->get_array().size()];
    } else {
      break;
    }
  }
  const std::vector<json::value> others = {nullptr,
                                           true,
                                           -1,
                                           7,
                                           300,
                                           int64_t{1} << 40,
                                           1e300,
                                           "",
                                           "a b",
                                           "\u0120\u0120",
                                           "<|im_end|>",
                                           json::array{},
                                           json::object{},
                                           json::array{"a", "b"}};
  *at = others[random() % others.size()];
}

std::string DamageText(std::string text, std::mt19937& random) {
  for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
    const size_t at = random() % text.size();
    const size_t bytes = std::min<size_t>(1 + random() % 40, text.size() - at);
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, bytes);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), bytes));
        break;
      case 3:
        text.replace(at, bytes, text.substr(random() % text.size(), bytes));
        break;
      default:
        text.resize(at + 1);
    }
  }
  return text;
}

TEST(TokenizerFileTest, TwoThousandDamagedFilesAreRefusedOrConsistent) {
  const json::object whole = SmallTokenizerFile(kMerges);
  const std::string text = json::serialize(whole);
  std::mt19937 random(20);
  size_t read = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged;
    if (round % 2 == 0) {
      json::value tree = whole;
      DamageTree(tree, random);
      damaged = json::serialize(tree);
    } else {
      damaged = DamageText(text, random);
    }
    const auto tokenizer = Tokenizer::Parse(damaged);
    if (!tokenizer) {
      ASSERT_FALSE(tokenizer.error().message().empty());
      ASSERT_EQ(ValidUtf8Bytes(tokenizer.error().message()), tokenizer.error().message().size());
      continue;
    }
    ++read;
    const std::string sample = "Hello  w\u00f6rld, 12 \u4f60 <|im_start|>\n\x01";
    for (const auto special : {SpecialTokens::kAsText, SpecialTokens::kRecognised}) {
      const auto ids = tokenizer->Encode(sample, special);
      ASSERT_TRUE(ids);
      ASSERT_EQ(tokenizer->Decode(*ids), sample) << round;
    }
  }
  // Some damage does not matter; if all or none were refused the damage would be no test.
  EXPECT_GT(read, 20u);
  EXPECT_LT(read, 1500u);
}

}  // namespace
}  // namespace mneme::model

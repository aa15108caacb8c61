// Folders of every layout that are whole, and each kind of damage: found by the part it belongs to
// and named.
#include "model/model_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/support/hla_folder.h"

namespace mneme::model {
namespace {

using support::HlaFolderSizes;
using support::ScratchFolder;
using support::WriteHlaFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Outcome {
  Status status;
  std::vector<std::string> parts;
  std::string found;  // of the last part
};

Outcome Check(const std::filesystem::path& folder, const std::string& reader = "") {
  Outcome outcome;
  ModelCheckOptions options;
  options.reader = reader;
  outcome.status = CheckModel(folder, options, [&](const ModelCheckPart& part) {
    outcome.parts.push_back(part.name);
    outcome.found = part.found;
  });
  return outcome;
}

std::filesystem::path Golden(const std::string& name) {
  return std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/models" / name;
}

TEST(ModelCheckTest, EveryLayoutPassesAllParts) {
  for (const char* name : {"hybrid_tied", "grouped_untied", "routed", "hla", "mhla_lm"}) {
    const Outcome outcome = Check(Golden(name));
    ASSERT_TRUE(outcome.status) << name << ": " << outcome.status.error().message();
    EXPECT_THAT(outcome.parts,
                ElementsAre("files", "tensors", "numbers", "tokenizer", "memory", "tokens"));
    EXPECT_THAT(outcome.found, HasSubstr("300 read as a prompt and one by one")) << name;
  }
  for (const char* reader : {"native", "mhla", "hla"})
    EXPECT_TRUE(Check(Golden("routed"), reader).status) << reader;
}

TEST(ModelCheckTest, ATokenizerOfAnotherModelIsNamed) {
  const ScratchFolder folder;
  HlaFolderSizes sizes;
  sizes.vocab = 1499;
  WriteHlaFolder(folder.path(), sizes);
  support::WriteLlamaTokenizer(folder.path());
  const Outcome outcome = Check(folder.path());
  ASSERT_FALSE(outcome.status);
  EXPECT_THAT(outcome.status.error().message(),
              HasSubstr("tokenizer.json: expected at most 1499 ids"));
  EXPECT_THAT(outcome.parts, ElementsAre("files", "tensors", "numbers"));
  sizes.vocab = 1600;
  WriteHlaFolder(folder.path(), sizes);
  EXPECT_TRUE(Check(folder.path()).status) << "the embedding may be padded";
}

TEST(ModelCheckTest, ANumberThatIsNotFiniteIsNamed) {
  const ScratchFolder folder;
  WriteHlaFolder(folder.path());
  std::string bytes;
  {
    std::ifstream file(folder.path() / "model.safetensors", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::string damaged = bytes;
    std::memcpy(damaged.data() + damaged.size() - sizeof(bad), &bad, sizeof(bad));
    support::WriteBytes(folder.path() / "model.safetensors", damaged);
    const Outcome outcome = Check(folder.path());
    ASSERT_FALSE(outcome.status);
    EXPECT_EQ(outcome.status.error().code(), ErrorCode::kCorruption);
    // The last of the names in order.
    EXPECT_THAT(outcome.status.error().message(),
                HasSubstr("tensor transformer.wte.weight: expected finite numbers, found one that "
                          "is not at 35999 of 36000"));
    EXPECT_THAT(outcome.parts, ElementsAre("files", "tensors"));
  }
}

TEST(ModelCheckTest, LogitsThatLeaveTheNumbersAreFound) {
  const ScratchFolder folder;
  HlaFolderSizes sizes;
  WriteHlaFolder(folder.path(), sizes);
  std::string bytes;
  {
    std::ifstream file(folder.path() / "model.safetensors", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  // The last norm stands before the embedding, which is the last tensor: all finite, and so large
  // that the logits are not.
  const float large = 3e38f;
  const size_t embedding = bytes.size() - size_t{1500} * 24 * 4;
  for (size_t at = embedding - size_t{24} * 4; at < embedding; at += 4)
    std::memcpy(bytes.data() + at, &large, sizeof(large));
  support::WriteBytes(folder.path() / "model.safetensors", bytes);
  const Outcome outcome = Check(folder.path());
  ASSERT_FALSE(outcome.status);
  EXPECT_THAT(outcome.status.error().message(), HasSubstr("logit of id 0"));
  EXPECT_EQ(outcome.parts.back(), "memory");
}

TEST(ModelCheckTest, AFileThatIsNotTheListedOneIsNamed) {
  const ScratchFolder folder;
  WriteHlaFolder(folder.path());
  folder.Write("SHA256SUMS", std::string(64, '0') + "  model.safetensors\n");
  const Outcome outcome = Check(folder.path());
  ASSERT_FALSE(outcome.status);
  EXPECT_EQ(outcome.status.error().code(), ErrorCode::kCorruption);
  EXPECT_TRUE(outcome.parts.empty());
}

}  // namespace
}  // namespace mneme::model

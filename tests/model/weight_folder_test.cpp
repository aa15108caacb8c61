// A folder of weight files as one set of tensors, and what an index may not say.
#include "model/weight_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::Counting;
using support::FileOf;
using support::ScratchFolder;
using ::testing::HasSubstr;

constexpr std::string_view kIndex = "model.safetensors.index.json";

class WeightFolderTest : public ::testing::Test {
 protected:
  void WriteShards() const {
    folder_.Write("one.safetensors", FileOf({{"a", Counting("F32", {2})}}));
    folder_.Write("two.safetensors", FileOf({{"b", Counting("F32", {3})}}));
  }
  Error RefuseIndex(std::string_view map) const {
    folder_.Write(kIndex,
                  fmt::format(R"({{"metadata":{{"total_size":20}},"weight_map":{}}})", map));
    auto folder = WeightFolder::Open(folder_.path());
    if (folder) {
      ADD_FAILURE() << "accepted: " << map;
      return Error(ErrorCode::kInternal, "accepted");
    }
    return std::move(folder).error();
  }
  ScratchFolder folder_;
};

TEST_F(WeightFolderTest, ReadsASingleFile) {
  folder_.Write("model.safetensors", FileOf({{"a", Counting("F32", {2})}}));
  auto folder = WeightFolder::Open(folder_.path());
  ASSERT_TRUE(folder) << folder.error().message();
  EXPECT_EQ(folder->Find("a").file->name(), "model.safetensors");
  EXPECT_EQ(folder->Find("b").tensor, nullptr);
  EXPECT_EQ(folder->FingerprintFiles().size(), 1u);
  EXPECT_EQ(folder->bytes(), std::filesystem::file_size(folder_.path() / "model.safetensors"));
}

TEST_F(WeightFolderTest, ReadsTheShardsOfAnIndex) {
  WriteShards();
  folder_.Write(kIndex, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  auto folder = WeightFolder::Open(folder_.path());
  ASSERT_TRUE(folder) << folder.error().message();
  EXPECT_EQ(folder->Find("a").file->name(), "one.safetensors");
  EXPECT_EQ(folder->Find("b").file->name(), "two.safetensors");
  ASSERT_EQ(folder->FingerprintFiles().size(), 2u);
  EXPECT_EQ(folder->FingerprintFiles()[1], &folder->files()[1].file());
  std::filesystem::resize_file(folder_.path() / "two.safetensors", 9);
  EXPECT_FALSE(folder->CheckUnchanged());
}

TEST_F(WeightFolderTest, FollowsALinkAsAHubsCacheHasThem) {
  const auto blob = folder_.Write("blob", FileOf({{"a", Counting("F32", {2})}}));
  std::filesystem::create_symlink(blob, folder_.path() / "model.safetensors");
  EXPECT_TRUE(WeightFolder::Open(folder_.path()));
}

TEST_F(WeightFolderTest, SaysWhatAFolderWithoutWeightsLacks) {
  const auto folder = WeightFolder::Open(folder_.path());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(folder.error().message(), HasSubstr("model.safetensors.index.json, found neither"));
}

TEST_F(WeightFolderTest, RefusesAnIndexThatLeavesTheFolder) {
  WriteShards();
  for (const std::string name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..",
                                 ".hidden", "", "a\\\\b", "one\\u0000.safetensors"}) {
    const Error error = RefuseIndex(fmt::format(R"({{"a":"{}"}})", name));
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("index.json: tensor a: expected the name of a file in "
                                           "this folder, found "))
        << name;
  }
}

TEST_F(WeightFolderTest, RefusesAnIndexThatDoesNotFitItsShards) {
  WriteShards();
  EXPECT_THAT(RefuseIndex(R"({"a":"two.safetensors"})").message(),
              HasSubstr("tensor a: expected it in two.safetensors, found it in no file"));
  EXPECT_THAT(RefuseIndex(R"({"a":"one.safetensors","b":"one.safetensors"})").message(),
              HasSubstr("tensor b: expected it in one.safetensors, found it in no file"));
  EXPECT_EQ(RefuseIndex(R"({"a":"three.safetensors"})").code(), ErrorCode::kNotFound);
  EXPECT_THAT(RefuseIndex(R"({"a":"one.safetensors","a":"two.safetensors"})").message(),
              HasSubstr("the key a stands twice"));
  EXPECT_THAT(RefuseIndex(R"({"a":7})").message(),
              HasSubstr("tensor a: expected a file name, found no string"));
  EXPECT_THAT(RefuseIndex("[]").message(), HasSubstr("expected an object weight_map, found none"));
  EXPECT_THAT(RefuseIndex("{}").message(), HasSubstr("expected tensors, found none"));
  folder_.Write("two.safetensors", FileOf({{"a", Counting("F32", {2})}}));
  EXPECT_THAT(RefuseIndex(R"({"a":"one.safetensors","c":"two.safetensors"})").message(),
              HasSubstr("two.safetensors: tensor a: expected it in one file, found it in "
                        "one.safetensors too"));
}

}  // namespace
}  // namespace mneme::model

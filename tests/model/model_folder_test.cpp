// Errors of a model folder: whichever of its files is damaged or gone, the folder and the file are
// named, so that a server that knows several folders says which one to mend.
#include "model/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "model/mhla_folder.h"
#include "tests/support/temp_folder.h"

namespace mneme::model {
namespace {

using ::testing::HasSubstr;

enum class Damage : uint8_t { kEmpty, kCut, kNotJson };

struct DamagedFile {
  std::string folder;  // under tests/golden/models
  std::string file;
  Damage damage;
};

std::string ErrorOf(const DamagedFile& damaged, const std::filesystem::path& copy) {
  std::filesystem::copy(
      std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/models" / damaged.folder, copy);
  const std::filesystem::path file = copy / damaged.file;
  const uint64_t bytes = std::filesystem::file_size(file);
  if (damaged.damage == Damage::kEmpty) std::filesystem::resize_file(file, 0);
  if (damaged.damage == Damage::kCut) std::filesystem::resize_file(file, bytes / 2);
  if (damaged.damage == Damage::kNotJson) std::ofstream(file) << "[]";
  if (damaged.folder == "mhla_lm") {
    const auto folder = MhlaFolder::Open(copy);
    return folder ? "accepted" : folder.error().message();
  }
  const auto folder = ModelFolder::Open(copy);
  return folder ? "accepted" : folder.error().message();
}

TEST(ModelFolderTest, EveryErrorOfAFileNamesTheFolderAndTheFile) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"routed", "config.json"},
      {"routed", "model.safetensors"},
      {"routed", "router.safetensors"},
      {"grouped_untied", "model.safetensors.index.json"},
      {"grouped_untied", "model-00002-of-00003.safetensors"},
      {"hla", "config.json"},
      {"hla", "model.safetensors"},
      {"mhla_lm", "config.json"},
      {"mhla_lm", "model.safetensors"},
  };
  int seen = 0;
  for (const auto& [folder, file] : files) {
    for (const Damage damage : {Damage::kEmpty, Damage::kCut, Damage::kNotJson}) {
      const support::TempFolder temp;
      const std::string copy = temp / "model" + std::to_string(seen++);
      const std::string error = ErrorOf({.folder = folder, .file = file, .damage = damage}, copy);
      EXPECT_THAT(error, HasSubstr(copy)) << file;
      EXPECT_THAT(error, HasSubstr(file));
      EXPECT_EQ(error.find(copy), error.rfind(copy)) << "named twice: " << error;
    }
  }
}

TEST(ModelFolderTest, WhetherAFolderIsMhlaFailsNamingIt) {
  const support::TempFolder temp;
  std::ofstream(temp / "config.json") << R"({"model_type": "gl)";
  const auto is = IsMhlaFolder(temp.path());
  ASSERT_FALSE(is);
  EXPECT_THAT(is.error().message(), HasSubstr("model folder " + temp.path() + ": config.json: "));
}

}  // namespace
}  // namespace mneme::model

// A golden checkpoint of tests/golden/models, loaded, and the numbers that another implementation
// computed with it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/local_session.h"
#include "model/weight_file.h"

namespace mneme::model {

inline std::filesystem::path FolderOf(const std::string& name) {
  return std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/models" / name;
}

// The numbers of one golden tensor.
template <typename T>
std::vector<T> Values(const WeightFile& file, const std::string& name) {
  const StoredTensor* tensor = file.Find(name);
  if (tensor == nullptr) return {};
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// Absolute below one, relative above.
inline void ExpectNear(std::span<const float> found, std::span<const float> expected,
                       float tolerance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t index = 0; index < found.size(); ++index) {
    const float allowed = tolerance * std::max(1.0f, std::fabs(expected[index]));
    ASSERT_NEAR(found[index], expected[index], allowed) << what << " at " << index;
  }
}

class Golden {
 public:
  // `numbers` is the file with what the other implementation computes.
  void Load(const std::filesystem::path& folder, const std::string& numbers, const char* reader,
            kernels::Dtype page_dtype, int threads) {
    const auto opened = ModelFolder::Open(folder);
    ASSERT_TRUE(opened) << opened.error().message();
    auto model = LocalModel::Load(*opened, {.reader = reader,
                                            .page_dtype = page_dtype,
                                            .threads = threads,
                                            .batch_max = 16,
                                            .progress = {}});
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    auto file = WeightFile::Open(folder / numbers);
    ASSERT_TRUE(file) << file.error().message();
    golden_ = std::make_unique<WeightFile>(std::move(*file));
    prompt_ = Values<int32_t>(*golden_, "prompt_ids");
    ASSERT_GT(prompt_.size(), 512u);
  }

  size_t vocab() const { return static_cast<size_t>(model_->model().config().vocab); }

  // Logits after each of the first `count` prompt tokens, read slice by slice.
  std::vector<float> PrefillLogits(LocalSession& session, size_t count) {
    std::vector<float> logits;
    size_t before = 0;
    const Status read = session.Read(std::span(prompt_).first(count), [&](size_t done) {
      const size_t rows = done - before;
      before = done;
      logits.resize(logits.size() + rows * vocab());
      const Status status = model_->step().AllLogits(std::span(logits).last(rows * vocab()));
      EXPECT_TRUE(status) << status.error().message();
      return true;
    });
    EXPECT_TRUE(read) << read.error().message();
    return logits;
  }

  // Logits after each of the prompt tokens from `first` on, read as if the model had drawn them.
  std::vector<float> DecodeLogits(LocalSession& session, size_t first) {
    std::vector<float> logits((prompt_.size() - first) * vocab());
    for (size_t position = first; position < prompt_.size(); ++position) {
      EXPECT_TRUE(session.Feed(prompt_[position]));
      const auto token =
          session.Next({}, std::span(logits).subspan((position - first) * vocab(), vocab()));
      EXPECT_TRUE(token) << token.error().message();
    }
    return logits;
  }

  void ExpectGoldenLogits(const std::vector<float>& logits, float tolerance) {
    const auto positions = Values<int32_t>(*golden_, "logit_positions");
    const auto expected = Values<float>(*golden_, "logits");
    ASSERT_EQ(expected.size(), positions.size() * vocab());
    for (size_t index = 0; index < positions.size(); ++index) {
      const auto position = static_cast<size_t>(positions[index]);
      ExpectNear(std::span(logits).subspan(position * vocab(), vocab()),
                 std::span(expected).subspan(index * vocab(), vocab()), tolerance,
                 "logits after position " + std::to_string(position));
    }
  }

  std::unique_ptr<LocalModel> model_;
  std::unique_ptr<WeightFile> golden_;
  std::vector<int32_t> prompt_;
};

}  // namespace mneme::model

// Gates held open for measuring: the router's by count, static ones against the native reader,
// whose folded history is what they read where every chunk is open.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/local_session.h"
#include "model/model_folder.h"
#include "tests/support/near.h"

namespace mneme::model {
namespace {

// Two layers with a router, one of them with a recent chunk, and a closed one; two key heads.
class OpenGatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder =
        ModelFolder::Open(std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/models/routed");
    ASSERT_TRUE(folder);
    folder_ = std::make_unique<ModelFolder>(*std::move(folder));
  }

  // Pages are f32. `newest_open` above 0: static gates, whatever the reader.
  std::unique_ptr<LocalModel> Load(const std::string& reader, int newest_open = 0) {
    LocalModelOptions options;
    options.reader = reader;
    options.page_dtype = kernels::Dtype::kF32;
    options.newest_open = newest_open;
    auto model = LocalModel::Load(*folder_, options);
    EXPECT_TRUE(model);
    return *std::move(model);
  }

  static std::vector<int32_t> Tokens(size_t count) {
    std::vector<int32_t> tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(10 + i * i % 130);
    return tokens;
  }

  std::vector<float> LogitsOf(const LocalSession& from) {
    LocalSession session = from.Fork();
    std::vector<float> logits(static_cast<size_t>(folder_->config().vocab));
    EXPECT_TRUE(session.Next({}, logits));
    return logits;
  }

  std::unique_ptr<ModelFolder> folder_;
};

TEST_F(OpenGatesTest, SoManyChunksAreReadWhateverTheRouterSays) {
  const auto model = Load("hla");
  LocalSession history(*model);
  ASSERT_TRUE(history.Read(Tokens(1000)));  // three closed chunks
  std::vector<std::vector<float>> logits;
  for (const int open : {1, 2}) {
    model->step().OpenGates(open);
    const GateCount before = model->step().counters().all_gates();
    LocalSession session = history.Fork();
    ASSERT_TRUE(session.Read(Tokens(20)));
    ASSERT_TRUE(session.Feed(30));
    const GateCount after = model->step().counters().all_gates();
    EXPECT_EQ(after.asked - before.asked, 21u * 2 * 2);
    EXPECT_EQ(after.open - before.open, 21u * 2 * 2 * static_cast<uint64_t>(open));
    logits.push_back(LogitsOf(session));
  }
  EXPECT_NE(logits[0], logits[1]);
}

TEST_F(OpenGatesTest, StaticGatesOfAllChunksReadTheHistoryThatNativeFolds) {
  const auto logits_of = [&](const std::string& reader, int newest_open) {
    const auto model = Load(reader, newest_open);
    LocalSession session(*model);
    EXPECT_TRUE(session.Read(Tokens(1000)));
    return LogitsOf(session);
  };
  const std::vector<float> native = logits_of("native", 0);
  const std::vector<float> all = logits_of("", 3);
  support::ExpectNear(all, std::vector<double>(native.begin(), native.end()), 2e-4);
  EXPECT_NE(logits_of("", 2), all);
}

TEST_F(OpenGatesTest, StaticGatesAreOneForTheNewestChunksAndZeroBefore) {
  const auto model = Load("", 2);
  for (const uint32_t query : {3u, 1000u}) {
    for (uint32_t back = 0; back <= 3; ++back)
      EXPECT_EQ(model->model().Mixing(0, query, query - back), back <= 2 ? 1.0f : 0.0f);
  }
}

}  // namespace
}  // namespace mneme::model

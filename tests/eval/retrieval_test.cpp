// The shipped demo model through the engine's own steps: it answers what it was told thousands of
// tokens before, and without closed chunks it does not. So nothing but memory answers.
#include "eval/retrieval.h"

#include <gtest/gtest.h>

namespace mneme::eval {
namespace {

class RetrievalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path root(MNEME_SOURCE_DIR);
    const auto folder = model::ModelFolder::Open(root / "checkpoints/demo");
    ASSERT_TRUE(folder) << folder.error().message();
    auto model = model::LocalModel::Load(*folder, {.reader = "hla", .threads = 2, .progress = {}});
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    auto tokenizer = folder->OpenTokenizer();
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    tokenizer_ = std::make_unique<model::Tokenizer>(std::move(*tokenizer));
    auto corpus = Corpus::Load(root / "eval/corpus/train");
    ASSERT_TRUE(corpus) << corpus.error().message();
    corpus_ = std::make_unique<Corpus>(std::move(*corpus));
  }

  RetrievalCount Measure(bool close_gates) {
    const auto count =
        MeasureRetrieval(*model_, *tokenizer_, *corpus_,
                         {.history = {.tokens = 4096, .facts = 10, .last_depth = 0.8},
                          .histories = 2,
                          .seed = 20,
                          .close_gates = close_gates,
                          .progress = {}});
    EXPECT_TRUE(count) << count.error().message();
    return count ? *count : RetrievalCount{};
  }

  std::unique_ptr<model::LocalModel> model_;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::unique_ptr<Corpus> corpus_;
};

TEST(DepthBinTest, TenSharesHoldEveryDepth) {
  EXPECT_EQ(DepthBin(0), 0);
  EXPECT_EQ(DepthBin(0.0999), 0);
  EXPECT_EQ(DepthBin(0.1001), 1);
  EXPECT_EQ(DepthBin(0.55), 5);
  EXPECT_EQ(DepthBin(0.9999), 9);
  EXPECT_EQ(DepthBin(1.0), 9);
  EXPECT_EQ(DepthBin(1.02), 9) << "the last statement may end a history late";
}

TEST_F(RetrievalTest, TheDemoModelAnswersFromMemoryAndOnlyFromMemory) {
  const RetrievalCount open = Measure(/*close_gates=*/false);
  EXPECT_EQ(open.all.asked, 20);
  EXPECT_GE(open.all.right, 19);

  RecallCount depths;
  for (const RecallCount& depth : open.by_depth) {
    depths.asked += depth.asked;
    depths.right += depth.right;
  }
  EXPECT_EQ(depths.asked, 20);
  EXPECT_EQ(depths.right, open.all.right);
  EXPECT_EQ(open.by_depth[8].asked + open.by_depth[9].asked, 0) << "facts end at 0.8";

  const size_t layers = model_->model().layout().routed_layers.size();
  const auto heads = static_cast<uint64_t>(model_->model().layout().linear.key_heads);
  ASSERT_EQ(open.history_gates.size(), layers);
  ASSERT_EQ(open.answer_gates.size(), layers);
  model::GateCount history, answers;
  for (size_t layer = 0; layer < layers; ++layer) {
    EXPECT_EQ(open.history_gates[layer].asked, open.tokens_read * heads);
    history += open.history_gates[layer];
    answers += open.answer_gates[layer];
  }
  EXPECT_GT(answers.mean(), 10 * history.mean()) << "chunks are read where answers are written";

  const RetrievalCount closed = Measure(/*close_gates=*/true);
  EXPECT_EQ(closed.all.asked, 20);
  EXPECT_LE(closed.all.right, 2) << "an answer came from somewhere else";
  for (const model::GateCount& layer : closed.answer_gates) EXPECT_EQ(layer.open, 0u);
}

}  // namespace
}  // namespace mneme::eval

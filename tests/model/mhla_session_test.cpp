// Sessions of an MHLA language model against float64 code written from its formulas, on a tiny
// random checkpoint and a prompt longer than the 32 blocks of its matrices
// (tests/golden/models/README.md): logits however the prompt is read, greedy tokens, forks, and
// what is refused.
#include "model/mhla_session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "model/weight_file.h"
#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

constexpr size_t kBlock = kernels::kMixBlockTokens;

class MhlaSessionTest : public ::testing::Test {
 protected:
  static std::filesystem::path Folder() {
    return std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/models/mhla_lm";
  }

  template <typename T>
  static std::vector<T> Values(const std::string& name) {
    const auto file = WeightFile::Open(Folder() / "golden.safetensors");
    const StoredTensor* tensor = file ? file->Find(name) : nullptr;
    if (tensor == nullptr) return {};
    std::vector<T> values(tensor->bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return values;
  }

  static std::unique_ptr<MhlaModel> Load(const MhlaOptions& options = {.threads = 2,
                                                                       .progress = {}}) {
    const auto folder = MhlaFolder::Open(Folder());
    EXPECT_TRUE(folder) << folder.error().message();
    auto model = MhlaModel::Load(*folder, options);
    EXPECT_TRUE(model) << model.error().message();
    return std::move(*model);
  }

  void SetUp() override {
    model_ = Load();
    prompt_ = Values<int32_t>("prompt_ids");
    ASSERT_GT(prompt_.size(), 33 * kBlock);
    vocab_ = static_cast<size_t>(model_->config().vocab);
  }

  // Reads prompt tokens [position, position + count) and adds the logits after each to `logits`.
  void Read(MhlaSession& session, size_t count, std::vector<float>& logits) {
    size_t before = 0;
    const auto tokens = std::span(prompt_).subspan(session.position(), count);
    const Status read = session.Read(tokens, [&](size_t done) {
      const size_t numbers = (done - before) * vocab_;
      before = done;
      logits.resize(logits.size() + numbers);
      const Status status = model_->StepLogits(std::span(logits).last(numbers));
      EXPECT_TRUE(status) << status.error().message();
      return true;
    });
    ASSERT_TRUE(read) << read.error().message();
  }

  void Feed(MhlaSession& session, size_t count, std::vector<float>& logits) {
    for (size_t i = 0; i < count; ++i) {
      const Status fed = session.Feed(prompt_[session.position()]);
      ASSERT_TRUE(fed) << fed.error().message();
      logits.resize(logits.size() + vocab_);
      ASSERT_TRUE(session.Next({}, std::span(logits).last(vocab_)));
    }
  }

  void ExpectGoldenLogits(const std::vector<float>& logits) {
    const auto positions = Values<int32_t>("logit_positions");
    const auto expected = Values<float>("logits");
    ASSERT_EQ(logits.size(), prompt_.size() * vocab_);
    ASSERT_EQ(expected.size(), positions.size() * vocab_);
    ASSERT_GT(positions.size(), 80u);
    for (size_t row = 0; row < positions.size(); ++row) {
      for (size_t id = 0; id < vocab_; ++id) {
        const float wanted = expected[row * vocab_ + id];
        ASSERT_NEAR(logits[static_cast<size_t>(positions[row]) * vocab_ + id], wanted,
                    1e-4f * std::max(1.0f, std::fabs(wanted)))
            << "after position " << positions[row] << ", id " << id;
      }
    }
  }

  std::unique_ptr<MhlaModel> model_;
  std::vector<int32_t> prompt_;
  size_t vocab_ = 0;
};

TEST_F(MhlaSessionTest, PiecesGiveTheLogitsOfTheFormula) {
  MhlaSession session(*model_);
  std::vector<float> logits;
  Read(session, prompt_.size(), logits);
  ExpectGoldenLogits(logits);
}

TEST_F(MhlaSessionTest, TokensOneByOneGiveTheLogitsOfTheFormula) {
  MhlaSession session(*model_);
  std::vector<float> logits;
  Feed(session, prompt_.size(), logits);
  ExpectGoldenLogits(logits);
}

// Reads that end anywhere, with generated tokens between, as a conversation has them.
TEST_F(MhlaSessionTest, AnyMixtureOfBothGivesTheLogitsOfTheFormula) {
  MhlaSession session(*model_);
  std::vector<float> logits;
  for (size_t count = 1; session.position() < prompt_.size(); count = count * 7 % 191 + 1) {
    Read(session, std::min(count, prompt_.size() - session.position()), logits);
    Feed(session, std::min(count % 5, prompt_.size() - session.position()), logits);
  }
  ExpectGoldenLogits(logits);
}

TEST_F(MhlaSessionTest, ContinuesWithTheSameGreedyTokens) {
  const auto expected = Values<int32_t>("greedy_ids");
  ASSERT_EQ(expected.size(), 64u);
  MhlaSession session(*model_);
  ASSERT_TRUE(session.Read(prompt_));
  std::vector<int32_t> found;
  while (found.size() < expected.size()) {
    const auto token = session.Next({});
    ASSERT_TRUE(token) << token.error().message();
    found.push_back(*token);
    ASSERT_TRUE(session.Feed(*token));
  }
  EXPECT_EQ(found, expected);
}

TEST_F(MhlaSessionTest, AForkGoesOnAsItsParentDoes) {
  for (const size_t at : {size_t{10}, 2 * kBlock, 3 * kBlock + 1}) {
    SCOPED_TRACE(at);
    MhlaSession session(*model_);
    ASSERT_TRUE(session.Read(std::span(prompt_).first(at)));
    MhlaSession fork = session.Fork();
    const auto rest = std::span(prompt_).subspan(at, 3 * kBlock);
    std::vector<float> parents(vocab_), forks(vocab_);
    ASSERT_TRUE(session.Read(rest));
    ASSERT_TRUE(session.Next({}, parents));
    EXPECT_EQ(fork.position(), at);
    ASSERT_TRUE(fork.Read(rest));
    ASSERT_TRUE(fork.Next({}, forks));
    EXPECT_EQ(forks, parents);
  }
}

TEST_F(MhlaSessionTest, BitsDoNotDependOnThreads) {
  std::vector<float> two(vocab_), one(vocab_);
  MhlaSession session(*model_);
  ASSERT_TRUE(session.Read(std::span(prompt_).first(300)));
  ASSERT_TRUE(session.Next({}, two));
  const auto model = Load({.threads = 1, .progress = {}});
  MhlaSession other(*model);
  ASSERT_TRUE(other.Read(std::span(prompt_).first(300)));
  ASSERT_TRUE(other.Next({}, one));
  EXPECT_EQ(one, two);
}

TEST_F(MhlaSessionTest, MemoryStopsGrowingWithTheMatrix) {
  MhlaSession session(*model_);
  EXPECT_EQ(session.bytes(), 0u);
  const uint64_t block = 2 * 2 * 8 * 16 * sizeof(float);  // layers, heads, K, V
  ASSERT_TRUE(session.Read(std::span(prompt_).first(1)));
  EXPECT_EQ(session.bytes(), block);
  ASSERT_TRUE(session.Read(std::span(prompt_).subspan(1, kBlock)));
  EXPECT_EQ(session.bytes(), 3 * block);
  for (size_t blocks = 3; (blocks - 1) * kBlock < prompt_.size(); ++blocks) {
    const size_t end = std::min(blocks * kBlock, prompt_.size());
    ASSERT_TRUE(
        session.Read(std::span(prompt_).subspan(session.position(), end - session.position())));
    EXPECT_EQ(session.bytes(), std::min<uint64_t>(blocks + 1, 33) * block);
  }
}

TEST_F(MhlaSessionTest, RefusesToGoBeyondTheMatrixWhereItIsTold) {
  const auto model = Load({.beyond = BeyondMatrix::kRefuse, .progress = {}});
  MhlaSession session(*model);
  const Status read = session.Read(prompt_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().reason(), Reason::kContextLimit);
  EXPECT_EQ(read.error().message(),
            "session: token 2048: the mixing matrix knows 32 blocks of 64 tokens; let it serve by "
            "distance to go on");
  EXPECT_EQ(session.position(), 2048u);
  // What it has read is whole, and it refuses again.
  std::vector<float> logits(vocab_), expected(vocab_);
  ASSERT_TRUE(session.Next({}, logits));
  MhlaSession other(*model_);
  ASSERT_TRUE(other.Read(std::span(prompt_).first(2048)));
  ASSERT_TRUE(other.Next({}, expected));
  EXPECT_EQ(logits, expected);
  EXPECT_FALSE(session.Feed(prompt_[2048]));
}

TEST_F(MhlaSessionTest, RefusesMoreMemoryThanItMayHave) {
  const uint64_t block = 2 * 2 * 8 * 16 * sizeof(float);
  const auto model = Load({.session_bytes_max = 9 * block / 2, .progress = {}});
  MhlaSession session(*model);
  const Status read = session.Read(prompt_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(
      read.error().message(),
      "session: token 192: the sums of 3 blocks, this one and what they mix to take 10.0 KiB, at "
      "most 9.0 KiB");
  EXPECT_EQ(session.position(), 192u);
}

TEST_F(MhlaSessionTest, RefusesIdsThatTheModelDoesNotHaveAndReadsNothing) {
  MhlaSession session(*model_);
  const auto words = [](const Status& status) {
    return status ? std::string() : status.error().message();
  };
  for (const int32_t id : {-1, 96}) {
    const std::vector<int32_t> tokens = {5, id};
    EXPECT_EQ(
        words(session.Read(tokens)),
        "token 1: expected an id below the model's vocabulary of 96, found " + std::to_string(id));
  }
  EXPECT_EQ(session.position(), 0u);
  const auto next = session.Next({});
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().message(), "session: no token to draw the next one after");
}

TEST_F(MhlaSessionTest, AMatrixThatHoldsNoNumberIsRefused) {
  const support::ScratchFolder folder;
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy(Folder() / name, folder.path() / name);
  {
    const auto opened = MhlaFolder::Open(folder.path());
    ASSERT_TRUE(opened);
    const auto file = WeightFile::Open(folder.path() / "model.safetensors");
    const StoredTensor* mixing = file->Find("model.layers.1.attn.mixing_matrix");
    const auto at = mixing->bytes.data() - file->bytes().data() + 32 * 4;  // [1, 0]
    std::fstream(folder.path() / "model.safetensors",
                 std::ios::in | std::ios::out | std::ios::binary)
        .seekp(at)
        .write("\x00\x00\xc0\x7f", 4);
  }
  const auto opened = MhlaFolder::Open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message();
  const auto model = MhlaModel::Load(*opened, {.progress = {}});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message(),
            "model folder " + folder.path().string() +
                ": model.safetensors: tensor model.layers.1.attn.mixing_matrix: expected finite "
                "numbers, found one that is not at 32 of 1024");
}

}  // namespace
}  // namespace mneme::model

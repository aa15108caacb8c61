// The engine against other implementations, on tiny random checkpoints and prompts that cross chunk
// borders (tests/golden/models/README.md): Hugging Face transformers for the native reader of
// Qwen3.5 (logits, final states, 64 greedy tokens), plain float64 code written from the formulas
// for that of the HLA layout, for routed history and for static mixing.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/golden_case.h"

namespace mneme::model {
namespace {

using kernels::Dtype;

class GoldenTest : public ::testing::TestWithParam<const char*>, public Golden {
 protected:
  void Load(Dtype page_dtype, int threads = 2) {
    Golden::Load(FolderOf(GetParam()), "golden.safetensors", "native", page_dtype, threads);
  }
};

TEST_P(GoldenTest, PrefillGivesTheSameLogits) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  ExpectGoldenLogits(PrefillLogits(session, prompt_.size()), 1e-4f);
}

TEST_P(GoldenTest, PrefillGivesTheSameLogitsWithHalfPages) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF16));
  LocalSession session(*model_);
  ExpectGoldenLogits(PrefillLogits(session, prompt_.size()), 2e-3f);
}

TEST_P(GoldenTest, TokenByTokenGivesTheSameLogits) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32, /*threads=*/1));
  LocalSession session(*model_);
  ExpectGoldenLogits(DecodeLogits(session, 0), 1e-4f);
}

TEST_P(GoldenTest, EndsWithTheSameStates) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  ASSERT_TRUE(session.Read(prompt_));
  const memory::MemoryLayout& layout = model_->model().layout();
  const kernels::LinearShape& shape = layout.linear;
  const kernels::SessionView view = session.memory().view();
  const int last = session.memory().open_tokens() - 1;
  ASSERT_GE(last, 0);
  for (size_t linear = 0; linear < layout.linear_layers.size(); ++linear) {
    const kernels::OpenRows& rows = view.open[linear];
    std::vector<float> state(layout.folded_floats());
    for (int head = 0; head < shape.value_heads; ++head) {
      const float* c = rows.c + head * shape.chunk_tokens;
      const float* folded = view.folded[linear] + head * shape.key_dim * shape.value_dim;
      for (int i = 0; i < shape.key_dim; ++i) {
        for (int j = 0; j < shape.value_dim; ++j) {
          double sum = std::exp(static_cast<double>(c[last])) * folded[i * shape.value_dim + j];
          for (int t = 0; t <= last; ++t) {
            const float* k = rows.k + ((head / shape.heads_per_group()) * shape.chunk_tokens + t) *
                                          shape.key_dim;
            const float* u =
                rows.u + (head * shape.chunk_tokens + t) * (shape.key_dim + shape.value_dim);
            double vector = u[shape.key_dim + j];
            for (int inner = 0; inner < shape.key_dim; ++inner)
              vector += static_cast<double>(u[inner]) * folded[inner * shape.value_dim + j];
            sum += std::exp(static_cast<double>(c[last] - c[t])) * k[i] * vector;
          }
          state[static_cast<size_t>((head * shape.key_dim + i) * shape.value_dim + j)] =
              static_cast<float>(sum);
        }
      }
    }
    const std::string name = "states." + std::to_string(layout.linear_layers[linear]);
    ExpectNear(state, Values<float>(*golden_, name), 1e-4f, name);
  }
}

TEST_P(GoldenTest, ContinuesWithTheSameGreedyTokens) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF16));
  LocalSession session(*model_);
  ASSERT_TRUE(session.Read(prompt_));
  std::vector<int32_t> found;
  const auto expected = Values<int32_t>(*golden_, "greedy_ids");
  ASSERT_EQ(expected.size(), 64u);
  while (found.size() < expected.size()) {
    const auto token = session.Next({});
    ASSERT_TRUE(token) << token.error().message();
    found.push_back(*token);
    ASSERT_TRUE(session.Feed(*token));
  }
  EXPECT_EQ(found, expected);
}

TEST_P(GoldenTest, AForkGoesOnAsItsParentDoes) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF16));
  LocalSession session(*model_);
  ASSERT_TRUE(session.Read(std::span(prompt_).first(300)));
  LocalSession fork = session.Fork();
  ASSERT_TRUE(session.Read(std::span(prompt_).subspan(300)));
  std::vector<float> parents(vocab());
  ASSERT_TRUE(session.Next({}, parents));
  ASSERT_TRUE(fork.Read(std::span(prompt_).subspan(300)));
  std::vector<float> forks(vocab());
  ASSERT_TRUE(fork.Next({}, forks));
  EXPECT_EQ(parents, forks) << "the same log gives the same bits";
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenTest,
                         ::testing::Values("hybrid_tied", "linear_tied", "grouped_untied",
                                           "linear_grouped", "hla"),
                         [](const auto& test) { return std::string(test.param); });

// The router's choice, the backward read, closed layers and recent chunks; then static mixing.
class GoldenHistoryTest : public ::testing::TestWithParam<const char*>, public Golden {
 protected:
  void Load(Dtype page_dtype) {
    const std::string reader = GetParam();
    Golden::Load(FolderOf("routed"), "golden_" + reader + ".safetensors", GetParam(), page_dtype,
                 2);
  }

  // Routed history scores representatives in f16. Where one lies between two f16 numbers, the last
  // bit of a product decides which it becomes, and that bit differs from one BLAS kernel to
  // another: a step of 2^-11 in one number moves the logits of these models by up to 1.1e-3, as f16
  // pages do.
  float tolerance() const { return std::string(GetParam()) == "hla" ? 2e-3f : 1e-4f; }
};

TEST_P(GoldenHistoryTest, PrefillGivesTheSameLogits) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  ExpectGoldenLogits(PrefillLogits(session, prompt_.size()), tolerance());
}

TEST_P(GoldenHistoryTest, HalfPagesStayWithinTheirRounding) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF16));
  LocalSession session(*model_);
  ExpectGoldenLogits(PrefillLogits(session, prompt_.size()), 2e-3f);
}

TEST_P(GoldenHistoryTest, GeneratedTokensGiveTheSameLogits) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  const size_t first = prompt_.size() - 40;
  std::vector<float> logits = PrefillLogits(session, first);
  const std::vector<float> generated = DecodeLogits(session, first);
  logits.insert(logits.end(), generated.begin(), generated.end());
  ExpectGoldenLogits(logits, tolerance());
}

INSTANTIATE_TEST_SUITE_P(Readers, GoldenHistoryTest, ::testing::Values("hla", "mhla"),
                         [](const auto& test) { return std::string(test.param); });

class ClosedGatesTest : public ::testing::Test, public Golden {};

TEST_F(ClosedGatesTest, GiveOtherLogits) {
  ASSERT_NO_FATAL_FAILURE(
      Load(FolderOf("routed"), "golden_hla.safetensors", "hla", Dtype::kF32, 1));
  LocalSession open(*model_);
  ASSERT_TRUE(open.Read(prompt_));
  std::vector<float> with(vocab());
  ASSERT_TRUE(open.Next({}, with));
  model_->step().CloseAllGates(true);
  LocalSession closed(*model_);
  ASSERT_TRUE(closed.Read(prompt_));
  std::vector<float> without(vocab());
  ASSERT_TRUE(closed.Next({}, without));
  float difference = 0;
  for (size_t id = 0; id < with.size(); ++id)
    difference = std::max(difference, std::fabs(with[id] - without[id]));
  EXPECT_GT(difference, 1e-2f);
}

}  // namespace
}  // namespace mneme::model

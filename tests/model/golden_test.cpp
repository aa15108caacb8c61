// The engine against other implementations, on tiny random checkpoints and prompts that cross chunk
// borders (tests/golden/models/README.md): Hugging Face transformers for the native reader (logits,
// final states, 64 greedy tokens), plain float64 code written from the formulas for routed history
// and for static mixing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/local_session.h"
#include "model/weight_file.h"

namespace mneme::model {
namespace {

using kernels::Dtype;

std::filesystem::path FolderOf(const std::string& name) {
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
void ExpectNear(std::span<const float> found, std::span<const float> expected, float tolerance,
                const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t index = 0; index < found.size(); ++index) {
    const float allowed = tolerance * std::max(1.0f, std::fabs(expected[index]));
    ASSERT_NEAR(found[index], expected[index], allowed) << what << " at " << index;
  }
}

class Golden {
 public:
  // `numbers` is the file with what the other implementation computes.
  void Load(const std::string& folder, const std::string& numbers, const char* reader,
            Dtype page_dtype, int threads) {
    const auto opened = ModelFolder::Open(FolderOf(folder));
    ASSERT_TRUE(opened) << opened.error().message();
    auto model = LocalModel::Load(*opened, {.reader = reader,
                                            .page_dtype = page_dtype,
                                            .threads = threads,
                                            .batch_max = 16,
                                            .progress = {}});
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    auto file = WeightFile::Open(FolderOf(folder) / numbers);
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

class GoldenTest : public ::testing::TestWithParam<const char*>, public Golden {
 protected:
  void Load(Dtype page_dtype, int threads = 2) {
    Golden::Load(GetParam(), "golden.safetensors", "native", page_dtype, threads);
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
                                           "linear_grouped"),
                         [](const auto& test) { return std::string(test.param); });

// The router's choice, the backward read, closed layers and recent chunks; then static mixing.
class GoldenHistoryTest : public ::testing::TestWithParam<const char*>, public Golden {
 protected:
  void Load(Dtype page_dtype) {
    const std::string reader = GetParam();
    Golden::Load("routed", "golden_" + reader + ".safetensors", GetParam(), page_dtype, 2);
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
  ASSERT_NO_FATAL_FAILURE(Load("routed", "golden_hla.safetensors", "hla", Dtype::kF32, 1));
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

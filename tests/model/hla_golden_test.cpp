// The released HLA-1.3B's layout against its formulas in float64 (tools/golden): transitions,
// representatives, gates and logits, with every gate read as released and with the paper's
// threshold, in whole slices, in odd ones and token by token, across four chunk borders.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "kernels/page_group.h"
#include "tests/model/checkpoint_files.h"
#include "tests/model/golden_case.h"

namespace mneme::model {
namespace {

using kernels::Dtype;
using support::ScratchFolder;

constexpr int kClosedChunks = 4;

struct HlaCase {
  const char* numbers;
  const char* theta;
};

class HlaGoldenTest : public ::testing::TestWithParam<HlaCase>, public Golden {
 protected:
  // The golden folder with the case's threshold in its configuration.
  void Load(Dtype page_dtype) {
    for (const auto& entry : std::filesystem::directory_iterator(FolderOf("hla")))
      std::filesystem::copy(entry.path(), folder_.path());
    std::ostringstream config;
    config << std::ifstream(folder_.path() / "config.json").rdbuf();
    std::string text = config.str();
    text.insert(text.rfind('}'), std::string(",\"route_theta\":") + GetParam().theta);
    folder_.Write("config.json", text);
    Golden::Load(folder_.path(), GetParam().numbers, "hla", page_dtype, 2);
  }

  const kernels::LinearShape& shape() const { return model_->model().layout().linear; }

  // Golden tensor `name` of a layer.
  std::vector<float> Expected(const std::string& name, int layer) const {
    return Values<float>(*golden_, name + "." + std::to_string(layer));
  }

  void ExpectGoldenPages(const LocalSession& session) {
    const kernels::LinearShape& s = shape();
    const size_t a_size = static_cast<size_t>(s.key_dim * s.key_dim);
    const size_t b_size = static_cast<size_t>(s.key_dim * s.value_dim);
    const kernels::SessionView view = session.memory().view();
    ASSERT_EQ(view.chunk_count, kClosedChunks);
    for (int layer = 0; layer < 3; ++layer) {
      std::vector<float> a, b;
      for (int chunk = 0; chunk < kClosedChunks; ++chunk) {
        for (int head = 0; head < s.key_heads; ++head) {
          const std::byte* group = view.chunks[chunk]->groups[layer * s.key_heads + head];
          kernels::PageGroupHeader header;
          std::memcpy(&header, group, sizeof(header));
          std::vector<float> page(a_size + b_size);
          std::memcpy(page.data(), group + sizeof(header), page.size() * sizeof(float));
          ASSERT_EQ(header.a_stored[0], 1);
          for (size_t i = 0; i < page.size(); ++i)
            page[i] = std::ldexp(page[i], i < b_size ? header.b_exponent[0] : header.a_exponent[0]);
          b.insert(b.end(), page.begin(), page.begin() + static_cast<ptrdiff_t>(b_size));
          a.insert(a.end(), page.begin() + static_cast<ptrdiff_t>(b_size), page.end());
        }
      }
      ExpectNear(a, Expected("a", layer), 2e-4f, "A of layer " + std::to_string(layer));
      ExpectNear(b, Expected("b", layer), 2e-4f, "B of layer " + std::to_string(layer));
    }
  }

  ScratchFolder folder_;
};

// Representatives are kept in f16; where one lies between two f16 numbers, the last bit of a
// product decides (golden_test.cpp).
constexpr float kLogitTolerance = 2e-3f;

TEST_P(HlaGoldenTest, PrefillGivesTheSameLogitsAndTransitions) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  ExpectGoldenLogits(PrefillLogits(session, prompt_.size()), kLogitTolerance);
  ExpectGoldenPages(session);
}

TEST_P(HlaGoldenTest, TokenByTokenGivesTheSameLogitsAndTransitions) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  ExpectGoldenLogits(DecodeLogits(session, 0), kLogitTolerance);
  ExpectGoldenPages(session);
}

TEST_P(HlaGoldenTest, TurnsOfAnyLengthGiveTheSameLogits) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  const size_t last = prompt_.size() - 40;
  for (size_t at = 0, length = 1; at < last; length = length * 3 % 101 + 1) {
    const size_t count = std::min(length, last - at);
    ASSERT_TRUE(session.Read(std::span(prompt_).subspan(at, count)));
    at += count;
  }
  const std::vector<float> generated = DecodeLogits(session, last);
  const auto expected = Values<float>(*golden_, "logits");
  ExpectNear(generated, std::span(expected).last(generated.size()), kLogitTolerance, "last logits");
}

TEST_P(HlaGoldenTest, HalfPagesStayWithinTheirRounding) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF16));
  LocalSession session(*model_);
  ExpectGoldenLogits(PrefillLogits(session, prompt_.size()), 1e-2f);
}

TEST_P(HlaGoldenTest, RepresentativesAreThoseOfTheFormulas) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  ASSERT_TRUE(session.Read(prompt_));
  const kernels::LinearShape& s = shape();
  EXPECT_EQ(s.representatives(), 16);
  const size_t per_layer = static_cast<size_t>(s.key_heads * s.representatives() * s.key_dim);
  for (int layer = 0; layer < 3; ++layer) {
    std::vector<float> found;
    for (int chunk = 0; chunk < kClosedChunks; ++chunk) {
      const uint16_t* stored = session.memory().view().chunks[chunk]->representatives;
      for (size_t i = 0; i < per_layer; ++i)
        found.push_back(kernels::F16ToF32(stored[static_cast<size_t>(layer) * per_layer + i]));
    }
    // One f16 step of a number below 2.
    ExpectNear(found, Expected("representatives", layer), 1.1e-3f, "representatives");
  }
}

TEST_P(HlaGoldenTest, TheLastQueryHasTheGatesOfTheFormulas) {
  ASSERT_NO_FATAL_FAILURE(Load(Dtype::kF32));
  LocalSession session(*model_);
  ASSERT_TRUE(session.Read(prompt_));
  const kernels::LinearShape& s = shape();
  const auto gates = Values<float>(*golden_, "gates");
  const kernels::SessionView view = session.memory().view();
  const int32_t token = 0, row_session = 0;
  const auto position = static_cast<int32_t>(prompt_.size() - 1);
  const kernels::StepTable step = {.form = kernels::RowForm::kDecode,
                                   .rows = 1,
                                   .token = &token,
                                   .position = &position,
                                   .session = &row_session,
                                   .sessions = &view,
                                   .session_count = 1};
  for (int layer = 0; layer < 3; ++layer) {
    std::vector<float> projected(static_cast<size_t>(s.projected_width()), 0.0f);
    const std::vector<float> query = Expected("q_raw", layer);
    std::copy(query.begin(), query.end(), projected.begin());
    const auto entries = static_cast<size_t>(s.key_heads * s.pages_max);
    std::vector<int32_t> chunk(entries), count(static_cast<size_t>(s.key_heads));
    std::vector<float> gate(entries);
    std::vector<const std::byte*> group(entries);
    const LinearLayer& linear = *model_->model().layers()[static_cast<size_t>(layer)].linear;
    int32_t misses = 0;
    auto stream = kernels::CpuKernels().make_stream(1);
    ASSERT_TRUE(stream);
    const Status status = kernels::CpuKernels().route(
        {.step = &step,
         .shape = s,
         .paged_layer = layer,
         .routed_layer = layer,
         .projected = projected.data(),
         .query_weight = linear.route_query.data(),
         .bias = linear.route_bias.data(),
         .theta = model_->model().theta(),
         .recent_chunks = 0,
         .list = {chunk.data(), gate.data(), group.data(), count.data()},
         .misses = &misses},
        **stream);
    ASSERT_TRUE(status) << status.error().message();
    // The last row of [positions, layers, heads, chunks].
    const size_t last =
        gates.size() - static_cast<size_t>((3 - layer) * s.key_heads) * kClosedChunks;
    for (int head = 0; head < s.key_heads; ++head) {
      std::vector<float> found(kClosedChunks, 0.0f);
      const auto first = static_cast<size_t>(head * s.pages_max);
      for (size_t i = first; i < first + static_cast<size_t>(count[static_cast<size_t>(head)]); ++i)
        found[static_cast<size_t>(chunk[i])] = gate[i];
      ExpectNear(
          found,
          std::span(gates).subspan(last + static_cast<size_t>(head) * kClosedChunks, kClosedChunks),
          2e-3f, "gates of layer " + std::to_string(layer));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Thresholds, HlaGoldenTest,
                         ::testing::Values(HlaCase{"golden_released.safetensors", "0"},
                                           HlaCase{"golden_threshold.safetensors", "0.1"}),
                         [](const auto& test) {
                           return std::string(test.index == 0 ? "Released" : "Threshold");
                         });

TEST(HlaThresholdTest, ClosesGatesThatAreReadWithoutIt) {
  const auto file = WeightFile::Open(FolderOf("hla") / "golden_threshold.safetensors");
  const auto released = WeightFile::Open(FolderOf("hla") / "golden_released.safetensors");
  ASSERT_TRUE(file && released);
  size_t closed = 0;
  for (const float gate : Values<float>(*file, "gates")) closed += gate == 0.0f ? 1 : 0;
  EXPECT_GT(closed, 100u);
  for (const float gate : Values<float>(*released, "gates")) EXPECT_NE(gate, 0.0f);
}

}  // namespace
}  // namespace mneme::model

// Bytes by arithmetic written out here, for the tiny model and for sizes published for the 4B; and
// the answer to a machine that is too small.
#include "model/memory_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using kernels::Dtype;
using memory::Reader;
using support::FileOf;
using support::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kFourB = R"({"model_type":"qwen3_5_text","hidden_size":2560,
  "intermediate_size":9216,"vocab_size":248320,"num_hidden_layers":32,"linear_num_key_heads":16,
  "linear_num_value_heads":32,"linear_key_head_dim":128,"linear_value_head_dim":128,
  "num_attention_heads":16,"num_key_value_heads":4,"head_dim":256,"rms_norm_eps":1e-6,
  "rope_theta":10000000,"max_position_embeddings":262144,"tie_word_embeddings":true})";

class MemoryNeedsTest : public ::testing::Test {
 protected:
  // Layers: 0 linear and closed with one recent chunk, 1 linear and routed, 2 full attention.
  void SetUp() override {
    folder_.Write("model.safetensors", FileOf(support::TinyTensors("model.", "BF16")));
    support::TestTensors route;
    for (const std::string part : {"q", "pool_k", "pool_v", "pool_o"})
      route["layers.1.route." + part + ".weight"] = support::Counting("BF16", {2, 6, 6});
    route["layers.1.route.bias"] = support::Counting("F32", {2});
    folder_.Write("router.safetensors", FileOf(route, {{"reader", "hla"},
                                                       {"chunk", "256"},
                                                       {"window", "16"},
                                                       {"theta", "0.1"},
                                                       {"pages_max", "8"},
                                                       {"closed_layers", "[0]"},
                                                       {"recent_chunks", "[1,0,0]"}}));
    config_ = *ModelConfig::Parse(support::TinyConfig());
    files_ = *WeightFolder::Open(folder_.path());
    weights_ = *Weights::Load(files_, config_);
    router_ = *RouterWeights::Open(folder_.path(), config_, {});
  }

  ScratchFolder folder_;
  ModelConfig config_;
  WeightFolder files_;
  Weights weights_;
  RouterWeights router_;
};

TEST_F(MemoryNeedsTest, CountsWhatEachReaderKeeps) {
  const MemoryNeeds needs = MemoryNeeds::Of(config_, weights_, router_, Dtype::kF16);
  // G 2, H 4, K 6, V 8; a group is a header and 2 heads of 6 x 14 f16 numbers.
  const uint64_t layer_chunk = 2 * (128 + 2 * 6 * 14 * 2);
  const uint64_t kv = 2 * 2 * 12 * 256 * 2;
  const uint64_t keys = 2 * 6 * 256, rows = 4 * 256 * (6 + 8 + 1), tails = 2 * 3 * 56;
  const uint64_t open = 4 * (2 * (keys + rows + tails) + 2 * 2 * 12 * 256);

  const ReaderNeeds& native = needs.For(Reader::kNative);
  EXPECT_TRUE(native.offered);
  EXPECT_EQ(native.page_bytes, 0u);
  EXPECT_EQ(native.kv_bytes, kv);
  EXPECT_EQ(native.folded_bytes, 2u * 4 * 6 * 8 * 4);
  EXPECT_EQ(native.open_chunk_bytes, open);
  EXPECT_EQ(native.kv_bytes_per_token(), 2 * 2 * 12 * 2);

  const ReaderNeeds& hla = needs.For(Reader::kHla);
  EXPECT_TRUE(hla.offered);
  EXPECT_EQ(hla.page_bytes, layer_chunk);
  EXPECT_EQ(hla.recent_page_bytes, layer_chunk);
  EXPECT_EQ(hla.representative_bytes, 2u * 16 * 6 * 2);
  EXPECT_EQ(hla.index_bytes, 2u * 6 + 2 * 2 * 4);
  EXPECT_EQ(hla.folded_bytes, 0u);
  EXPECT_EQ(hla.open_chunk_bytes, open + 4 * keys + hla.representative_bytes);

  const ReaderNeeds& mhla = needs.For(Reader::kMhla);
  EXPECT_FALSE(mhla.offered);
  EXPECT_EQ(mhla.page_bytes, layer_chunk);
  EXPECT_EQ(mhla.representative_bytes, 0u);

  // Layer 0 is closed; every value has a header of 64 bytes.
  EXPECT_EQ(hla.disk_chunk_bytes,
            layer_chunk + 64 + hla.representative_bytes + hla.index_bytes + 64 + kv);
  EXPECT_EQ(hla.rung_bytes, layer_chunk + 64 + 4 * (2 * 3 * 56 + 10));
  EXPECT_EQ(native.disk_chunk_bytes, 64 + kv);
  EXPECT_EQ(native.rung_bytes, 64 + 4 * (2 * 3 * 56 + 10) + native.folded_bytes);
}

TEST_F(MemoryNeedsTest, CountsPackedWeightsByType) {
  const uint64_t bf16 = MemoryNeeds::Of(config_, weights_, router_, Dtype::kF16).weights_bytes;
  folder_.Write("model.safetensors", FileOf(support::TinyTensors("model.", "F16")));
  const WeightFolder files = *WeightFolder::Open(folder_.path());
  const Weights wide = *Weights::Load(files, config_);
  const uint64_t f16 = MemoryNeeds::Of(config_, wide, router_, Dtype::kF16).weights_bytes;
  uint64_t matrices = 20 * 10;  // the head
  matrices += 3 * (3 * 14 * 10) + 2 * (56 + 32 + 4 + 4 + 32) * 10;
  matrices += (96 + 24 + 24 + 48) * 10;
  EXPECT_EQ(f16 - bf16, matrices * 2) << "f16 is packed as f32";
}

TEST_F(MemoryNeedsTest, LaysOutLayersForTheMemory) {
  const memory::MemoryLayout hla = LayoutOf(config_, router_, Reader::kHla, Dtype::kF32);
  EXPECT_THAT(hla.linear_layers, ElementsAre(0, 1));
  EXPECT_THAT(hla.attention_layers, ElementsAre(2));
  EXPECT_THAT(hla.paged_layers, ElementsAre(0, 1));
  EXPECT_THAT(hla.routed_layers, ElementsAre(1));
  EXPECT_THAT(hla.recent_chunks, ElementsAre(1, 0));
  EXPECT_THAT(hla.closed_layers, ElementsAre(0));
  EXPECT_EQ(hla.linear.pages_max, 8);
  const memory::MemoryLayout native = LayoutOf(config_, router_, Reader::kNative, Dtype::kF16);
  EXPECT_TRUE(native.paged_layers.empty() && native.routed_layers.empty());
  EXPECT_EQ(native.linear.representatives(), 1) << "never divides by nothing";
}

TEST_F(MemoryNeedsTest, SaysHowManyTokensACapAdmits) {
  ReaderNeeds needs;
  needs.open_chunk_bytes = 100;
  needs.page_bytes = 1000;
  EXPECT_EQ(needs.TokensWithin(99), 0u);
  EXPECT_EQ(needs.TokensWithin(1099), 0u);
  EXPECT_EQ(needs.TokensWithin(5100), 5u * 256);
  needs.page_bytes = 0;
  EXPECT_EQ(needs.TokensWithin(5000), std::nullopt) << "a folded history has any length";
}

TEST_F(MemoryNeedsTest, AgreesWithThePublishedSizes) {
  const ModelConfig config = *ModelConfig::Parse(kFourB);
  const ScratchFolder empty;
  const RouterWeights router = *RouterWeights::Open(empty.path(), config, {});
  const memory::MemoryLayout layout = LayoutOf(config, router, Reader::kMhla, Dtype::kF16);
  EXPECT_EQ(layout.attention_layers.size() * layout.kv_page_bytes() / 256, 32768u);
  EXPECT_EQ(layout.linear_layers.size() * layout.folded_floats() * 4, 48 * kMiB);
  // 48 MiB of pages for 256 tokens, and a header of 128 bytes for each of 24 x 16 groups.
  EXPECT_EQ(static_cast<uint64_t>(layout.groups_per_chunk()) * layout.group_bytes(),
            48 * kMiB + 24 * 16 * 128);
}

TEST_F(MemoryNeedsTest, RefusesAModelThatDoesNotFitWithBothNumbers) {
  const MemoryNeeds needs = MemoryNeeds::Of(config_, weights_, router_, Dtype::kF16);
  const ReaderNeeds& own = needs.For(Reader::kHla);
  const uint64_t needed =
      needs.weights_bytes + needs.workspace_bytes + own.session_bytes() + own.chunk_bytes();
  EXPECT_TRUE(CheckFits(needs, Reader::kHla, needed));
  const Status refused = CheckFits(needs, Reader::kHla, needed - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr(fmt::format("needed {} bytes", needed)));
  EXPECT_THAT(refused.error().message(), HasSubstr(fmt::format("free {} bytes", needed - 1)));
  EXPECT_EQ(BytesText(7), "7 B");
  EXPECT_EQ(BytesText(12 * kKiB), "12.0 KiB");
  EXPECT_EQ(BytesText(3 * kGiB / 2), "1.5 GiB");
}

}  // namespace
}  // namespace mneme::model

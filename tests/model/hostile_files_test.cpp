// Thousands of seeded mutations of small checkpoint files: each must load or be refused with a
// message, never crash, and never take memory that the file's own size does not explain. operator
// new is counted in this program for that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <random>

#include "model/model_config.h"
#include "model/router_weights.h"
#include "model/strict_json.h"
#include "model/weights.h"
#include "tests/model/checkpoint_files.h"

namespace {

thread_local size_t live_bytes = 0;  // asked for since the last reset; frees are not subtracted
thread_local size_t largest_bytes = 0;

}  // namespace

// malloc under them, so that AddressSanitizer still watches every byte. Not inlined: GCC 12 at -O3
// would see one of a pair without the other and call them mismatched.
[[gnu::noinline]] void* operator new(size_t bytes) {
  live_bytes += bytes;
  largest_bytes = std::max(largest_bytes, bytes);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// The standard library's temporary buffers ask without exceptions and give back through delete.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  live_bytes += bytes;
  largest_bytes = std::max(largest_bytes, bytes);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace mneme::model {
namespace {

using support::FileOf;
using support::ScratchFolder;
using support::TinyConfig;
using support::TinyTensors;

// One to eight changes: a byte set, a bit flipped, a piece cut, doubled, or replaced by a number
// that sizes like to break on.
std::string Mutate(std::string bytes, std::mt19937& random) {
  static constexpr std::string_view kNumbers[] = {"0",
                                                  "-1",
                                                  "18446744073709551615",
                                                  "9223372036854775808",
                                                  "4294967296",
                                                  "1e9",
                                                  "65537",
                                                  "[",
                                                  "}",
                                                  "\"",
                                                  "null",
                                                  "[0,0]",
                                                  "{}",
                                                  "1.5",
                                                  "999999999999999999999"};
  const auto at = [&](size_t size) { return size == 0 ? 0 : random() % size; };
  for (size_t count = 1 + random() % 8; count > 0 && !bytes.empty(); --count) {
    const size_t place = at(bytes.size());
    const size_t length = std::min<size_t>(1 + random() % 12, bytes.size() - place);
    switch (random() % 6) {
      case 0:
        bytes[place] = static_cast<char>(random());
        break;
      case 1:
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << random() % 8));
        break;
      case 2:
        bytes.erase(place, length);
        break;
      case 3:
        bytes.insert(at(bytes.size()), bytes.substr(place, length));
        break;
      case 4:
        bytes.replace(place, length, kNumbers[random() % std::size(kNumbers)]);
        break;
      default:
        if (random() % 4 == 0) bytes.resize(place);
        break;
    }
  }
  return bytes;
}

// What loading took, against what the bytes given explain: strings of names, one record a tensor.
void ExpectModestMemory(size_t file_bytes) {
  EXPECT_LE(largest_bytes, 16384 + 4 * file_bytes);
  EXPECT_LE(live_bytes, 65536 + 64 * file_bytes);
}

void StartCounting() { live_bytes = largest_bytes = 0; }

TEST(HostileFilesTest, MutatedWeightFilesLoadOrAreRefused) {
  const ScratchFolder folder;
  auto tensors = TinyTensors();
  const std::string whole = FileOf(tensors, {{"format", "pt"}, {"closed_layers", "[0,1]"}});
  const auto config = ModelConfig::Parse(TinyConfig());
  ASSERT_TRUE(config);
  std::mt19937 random(20261129);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    // Mostly the header: that is where the sizes stand.
    const size_t header_end = whole.find('}', whole.rfind("data_offsets")) + 2;
    const std::string bytes =
        random() % 4 == 0 ? Mutate(whole, random)
                          : Mutate(whole.substr(0, header_end), random) + whole.substr(header_end);
    folder.Write("model.safetensors", bytes);
    StartCounting();
    auto files = WeightFolder::Open(folder.path());
    std::string message;
    if (files) {
      const auto weights = Weights::Load(*files, *config);
      if (!weights) message = weights.error().message();
    } else {
      message = files.error().message();
    }
    ExpectModestMemory(bytes.size());
    if (files && message.empty()) continue;
    ++refused;
    EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
    EXPECT_NE(message.find("found"), std::string::npos) << message;
    EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) {
      return c >= 0x20 && c < 0x7f;
    })) << message;
  }
  EXPECT_GT(refused, 1000) << "the mutations hardly touch anything";
}

TEST(HostileFilesTest, MutatedHeadersWithRightLengthsLoadOrAreRefused) {
  const ScratchFolder folder;
  const std::string whole = FileOf(TinyTensors());
  const size_t header_end = whole.find('}', whole.rfind("data_offsets")) + 2;
  const std::string header = whole.substr(8, header_end - 8);
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::string bytes = FileOf(Mutate(header, random), whole.substr(header_end));
    const auto path = folder.Write("w.safetensors", bytes);
    StartCounting();
    auto file = WeightFile::Open(path);
    ExpectModestMemory(bytes.size());
    if (!file) {
      ++refused;
      EXPECT_NE(file.error().message().find("expected"), std::string::npos);
      continue;
    }
    // Views stay inside the file, whatever the header said.
    for (const StoredTensor& tensor : file->tensors()) {
      EXPECT_GE(tensor.bytes.data(), file->bytes().data());
      EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(),
                file->bytes().data() + file->bytes().size());
    }
  }
  EXPECT_GT(refused, 700);
}

TEST(HostileFilesTest, MutatedConfigurationsLoadOrAreRefused) {
  const std::string whole = TinyConfig(R"(,"eos_token_id":[1,2],"tie_word_embeddings":true)");
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::string bytes = Mutate(whole, random);
    StartCounting();
    const auto config = ModelConfig::Parse(bytes);
    ExpectModestMemory(bytes.size());
    if (config) continue;
    ++refused;
    EXPECT_NE(config.error().message().find("config.json"), std::string::npos);
    EXPECT_NE(config.error().message().find("expected"), std::string::npos);
  }
  EXPECT_GT(refused, 500);
}

TEST(HostileFilesTest, MutatedIndexesLoadOrAreRefused) {
  const ScratchFolder folder;
  folder.Write("one.safetensors", FileOf({{"a", support::Counting("F32", {2})}}));
  folder.Write("two.safetensors", FileOf({{"b", support::Counting("F32", {3})}}));
  const std::string whole = R"({"metadata":{"total_size":20},)"
                            R"("weight_map":{"a":"one.safetensors","b":"two.safetensors"}})";
  std::mt19937 random(13);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    const std::string bytes = Mutate(whole, random);
    folder.Write("model.safetensors.index.json", bytes);
    StartCounting();
    const auto files = WeightFolder::Open(folder.path());
    ExpectModestMemory(bytes.size() + 1024);
    if (!files) ++refused;
  }
  EXPECT_GT(refused, 250);
}

TEST(HostileFilesTest, MutatedRouterFilesLoadOrAreRefused) {
  const ScratchFolder folder;
  const auto config = ModelConfig::Parse(TinyConfig());
  ASSERT_TRUE(config);
  support::TestTensors tensors;
  for (const std::string part : {"q", "pool_k", "pool_v", "pool_o"})
    tensors["layers.1.route." + part + ".weight"] = support::Counting("BF16", {2, 6, 6});
  tensors["layers.1.route.bias"] = support::Counting("F32", {2});
  const std::string whole = FileOf(tensors, {{"reader", "hla"},
                                             {"chunk", "256"},
                                             {"window", "16"},
                                             {"theta", "0.1"},
                                             {"pages_max", "8"},
                                             {"closed_layers", "[0]"},
                                             {"recent_chunks", "[1,0,0]"}});
  const size_t header_end = whole.find('}', whole.rfind("data_offsets")) + 2;
  std::mt19937 random(17);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    const std::string bytes =
        FileOf(Mutate(whole.substr(8, header_end - 8), random), whole.substr(header_end));
    folder.Write("router.safetensors", bytes);
    StartCounting();
    const auto router = RouterWeights::Open(folder.path(), *config, {});
    ExpectModestMemory(bytes.size());
    if (router) continue;
    ++refused;
    EXPECT_NE(router.error().message().find("router.safetensors"), std::string::npos);
    EXPECT_NE(router.error().message().find("expected"), std::string::npos);
    EXPECT_NE(router.error().message().find("found"), std::string::npos);
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace mneme::model

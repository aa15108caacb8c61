// The text values of a router file's metadata, written both ways a list may be, and each refusal.
#include "model/router_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Metadata = std::map<std::string, std::string>;

// Layers 0 and 1 are linear, layer 2 is full attention.
ModelConfig Config() { return *ModelConfig::Parse(support::TinyConfig()); }

Metadata Whole() {
  return {{"reader", "hla"}, {"chunk", "256"},      {"window", "16"},
          {"theta", "0.1"},  {"pages_max", "16"},   {"closed_layers", "[0]"},
          {"format", "pt"},  {"notes", "anything"}, {"recent_chunks", "[1, 0, 0]"}};
}

std::string Refusal(const std::string& key, const std::string& value) {
  Metadata metadata = Whole();
  metadata[key] = value;
  const auto parsed = ParseRouterMetadata(metadata, "router.safetensors", "hla", Config());
  return parsed ? "accepted" : parsed.error().message();
}

TEST(RouterMetadataTest, ReadsListsWithAndWithoutBrackets) {
  for (const std::string closed : {"[0]", "0", " [ 0 ] "}) {
    for (const std::string recent : {"[1,0,0]", "1,0,0", "1, 0, 0"}) {
      Metadata metadata = Whole();
      metadata["closed_layers"] = closed;
      metadata["recent_chunks"] = recent;
      const auto parsed = ParseRouterMetadata(metadata, "router.safetensors", "hla", Config());
      ASSERT_TRUE(parsed) << parsed.error().message();
      EXPECT_THAT(parsed->closed, ElementsAre(true, false, false));
      EXPECT_THAT(parsed->recent_chunks, ElementsAre(1, 0, 0));
      EXPECT_EQ(parsed->window_tokens, 16);
      EXPECT_EQ(parsed->pages_max, 16);
      EXPECT_FLOAT_EQ(parsed->theta, 0.1f);
    }
  }
}

TEST(RouterMetadataTest, TakesMissingListsAsEmptyAndMixingWithoutRouterKeys) {
  const auto parsed =
      ParseRouterMetadata({{"reader", "mhla"}, {"chunk", "256"}, {"closed_layers", "[]"}},
                          "mixing.safetensors", "mhla", Config());
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_THAT(parsed->closed, ElementsAre(false, false, false));
  EXPECT_THAT(parsed->recent_chunks, ElementsAre(0, 0, 0));
}

TEST(RouterMetadataTest, RefusesEachValueOutsideItsLimits) {
  const struct {
    std::string key, value, expected;
  } cases[] = {
      {"reader", "mhla", "hla"},
      {"chunk", "64", "an integer from 256 to 256"},
      {"window", "24", "a divisor of 256"},
      {"window", "2", "an integer from 4 to 256"},
      {"window", "16.0", "an integer"},
      {"window", "0x10", "an integer"},
      {"pages_max", "0", "an integer from 1 to 256"},
      {"pages_max", "99999999999", "an integer from 1 to 256"},
      {"theta", "1", "a number from 0 to below 1"},
      {"theta", "nan", "a number from 0 to below 1"},
      {"theta", "0.1x", "a number from 0 to below 1"},
      {"closed_layers", "[2]", "linear layers of 3"},
      {"closed_layers", "[-1]", "linear layers of 3"},
      {"closed_layers", "[0,0]", "linear layers of 3, each once"},
      {"closed_layers", "[0", "a list of integers"},
      {"closed_layers", "0,", "an integer behind the last comma"},
      {"closed_layers", "[a]", "a list of at most 3 integers"},
      {"recent_chunks", "[1,0]", "one number for each of 3 layers"},
      {"recent_chunks", "[1,0,0,0]", "a list of at most 3 integers"},
      {"recent_chunks", "[17,0,0]", "at most pages_max (16) each"},
      {"recent_chunks", "[0,0,1]", "0 to 256 in a linear layer and 0 in others"},
  };
  for (const auto& c : cases) {
    const std::string message = Refusal(c.key, c.value);
    EXPECT_THAT(message,
                HasSubstr("router.safetensors: metadata " + c.key + ": expected " + c.expected));
    EXPECT_THAT(message, HasSubstr("found " + c.value));
  }
  EXPECT_THAT(Refusal("closed_layer", "[0]"), HasSubstr("metadata closed_layer: expected"));
}

TEST(RouterMetadataTest, RefusesEachMissingKeyOfARouter) {
  for (const std::string key : {"reader", "chunk", "window", "theta", "pages_max"}) {
    Metadata metadata = Whole();
    metadata.erase(key);
    const auto parsed = ParseRouterMetadata(metadata, "router.safetensors", "hla", Config());
    ASSERT_FALSE(parsed) << key;
    EXPECT_THAT(parsed.error().message(), HasSubstr("metadata " + key + ": expected"));
    EXPECT_THAT(parsed.error().message(), HasSubstr("found none"));
  }
}

}  // namespace
}  // namespace mneme::model

// Which readers take part, and what is refused. That the gates are as many as asked for is the
// command's own check, which these runs would fail by.
#include "cli/gate_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mneme::cli {
namespace {

using memory::Reader;
using ::testing::HasSubstr;

GateBenchOptions OptionsFor(const std::string& model, int gates) {
  GateBenchOptions options;
  options.model.choice.folder = std::string(MNEME_SOURCE_DIR) + "/tests/golden/models/" + model;
  options.model.choice.threads = 1;
  options.gates = gates;
  options.history = 600;
  return options;
}

TEST(GateBenchTest, NativeComesFirstAndHlaOnlyWhereThereIsARouter) {
  const auto readers_of = [](const std::string& model) {
    const auto times = MeasureGates(OptionsFor(model, 2));
    EXPECT_TRUE(times) << times.error().message();
    std::vector<Reader> readers;
    for (const ReaderTime& time : *times) {
      EXPECT_GT(time.token_seconds, 0);
      EXPECT_LT(time.token_seconds, 1);
      readers.push_back(time.reader);
    }
    return readers;
  };
  EXPECT_EQ(readers_of("routed"), (std::vector{Reader::kNative, Reader::kHla, Reader::kMhla}));
  EXPECT_EQ(readers_of("hybrid_tied"), (std::vector{Reader::kNative, Reader::kMhla}));
}

TEST(GateBenchTest, RefusesMoreGatesThanTheHistoryOrTheRouterHas) {
  const auto said = [](const GateBenchOptions& options) {
    const auto times = MeasureGates(options);
    EXPECT_FALSE(times);
    return std::string(times.error().message());
  };
  GateBenchOptions options = OptionsFor("routed", 3);
  EXPECT_EQ(said(options),
            "gates 3: 600 tokens of history are 2 closed chunks; --history 768 would do");
  options.history = 768;
  EXPECT_THAT(said(options), HasSubstr("models/routed opens 2 at most"));
}

}  // namespace
}  // namespace mneme::cli

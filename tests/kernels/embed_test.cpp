// Embedding rows against the stored numbers, exactly.
#include "kernels/embed.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_stream.h"
#include "tests/support/near.h"
#include "tests/support/random_floats.h"

namespace mneme::kernels::cpu {
namespace {

TEST(EmbedTest, CopiesTheTokensRowsExactlyFromEveryType) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    const support::StoredMatrix table(101, 33, dtype, support::RandomFloats(1).Many(101 * 33));
    const std::vector<int32_t> token = {100, 0, 57, 57};
    StepTable step;
    step.rows = 4;
    step.token = token.data();
    std::vector<float> x(4 * 33);
    CpuStream stream(1);
    ASSERT_TRUE(Embed({&step, table.view(), x.data()}, stream));
    for (size_t row = 0; row < 4; ++row) {
      const auto from = table.floats().begin() + token[row] * 33;
      const auto to = x.begin() + static_cast<std::ptrdiff_t>(row) * 33;
      support::ExpectSameBits({to, to + 33}, {from, from + 33});
    }
  }
}

TEST(EmbedTest, RefusesATokenThatTheTableHasNot) {
  const support::StoredMatrix table(5, 2, Dtype::kBf16, std::vector<float>(10, 1.0f));
  CpuStream stream(1);
  for (const int32_t bad : {-1, 5}) {
    const std::vector<int32_t> token = {4, bad};
    StepTable step;
    step.rows = 2;
    step.token = token.data();
    std::vector<float> x(4, 7.0f);
    const Status status = Embed({&step, table.view(), x.data()}, stream);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message(),
              "embed: row 1: token " + std::to_string(bad) + " of a table of 5");
    EXPECT_EQ(x, std::vector<float>(4, 7.0f)) << "something was written";
  }
}

TEST(EmbedTest, RefusesWhatItCannotRead) {
  CpuStream stream(1);
  const int32_t token = 0;
  StepTable step;
  step.rows = 1;
  step.token = &token;
  float x = 0;
  const std::byte bytes[4] = {};
  const auto refusal = [&](EmbedArgs args) {
    const Status status = Embed(args, stream);
    return status ? std::string() : status.error().message();
  };
  EXPECT_EQ(refusal({&step, {bytes, Dtype::kF32, 1, 1}, nullptr}), "embed: x is null");
  EXPECT_EQ(refusal({&step, {nullptr, Dtype::kF32, 1, 1}, &x}), "embed: table is null");
  EXPECT_EQ(refusal({&step, {bytes, Dtype::kI8, 1, 1}, &x}), "embed: table is I8");
  EXPECT_EQ(refusal({&step, {bytes, Dtype::kF32, 1, 0}, &x}), "embed: D is 0");
}

}  // namespace
}  // namespace mneme::kernels::cpu

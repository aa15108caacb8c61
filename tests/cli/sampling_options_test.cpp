// Flags of sampling: 0 stands for the default of each, and what is out of range is refused.
#include "cli/sampling_options.h"

#include <gtest/gtest.h>

#include <string>

namespace mneme::cli {
namespace {

SamplingChoice Parsed(const std::string& flags) {
  CLI::App app;
  SamplingChoice choice;
  AddSamplingOptions(app, choice);
  app.parse(flags);
  return choice;
}

TEST(SamplingOptionsTest, ZeroStandsForTheDefaultOfEach) {
  for (const char* flags : {"", "--max-tokens 0 --top-p 0 --repetition-penalty 0"}) {
    const SamplingChoice choice = Parsed(flags);
    EXPECT_EQ(choice.tokens_max(), 1024u) << "as the help says";
    EXPECT_EQ(choice.sampling().top_p, 1.0f);
    EXPECT_EQ(choice.sampling().repetition_penalty, 1.0f);
  }
}

TEST(SamplingOptionsTest, TakesEachFlag) {
  const SamplingChoice choice = Parsed(
      "--max-tokens 7 --temperature 0.5 --top-k 40 --top-p 0.9 --min-p 0.1 "
      "--repetition-penalty 1.5 --repetition-window 64 --seed 3");
  EXPECT_EQ(choice.tokens_max(), 7u);
  EXPECT_EQ(choice.repetition_window, 64u);
  const kernels::Sampling sampling = choice.sampling();
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.seed, 3u);
}

TEST(SamplingOptionsTest, RefusesWhatIsOutOfRange) {
  for (const char* flags : {"--top-p 1.1", "--min-p -0.1", "--temperature -1", "--top-k -1",
                            "--repetition-penalty -1", "--repetition-window 65537"})
    EXPECT_THROW(Parsed(flags), CLI::ParseError) << flags;
}

}  // namespace
}  // namespace mneme::cli

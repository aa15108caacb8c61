#include "cli/sampling_options.h"

#include <limits>

#include "engine/parts.h"
#include "engine/repetition_window.h"
#include "engine/request_check.h"

namespace mneme::cli {

uint32_t SamplingChoice::tokens_max() const {
  return max_tokens == 0 ? engine::EngineOptions().generated_tokens_default : max_tokens;
}

kernels::Sampling SamplingChoice::sampling() const {
  kernels::Sampling sampling;
  sampling.temperature = temperature;
  sampling.top_k = static_cast<int32_t>(top_k);
  sampling.top_p = top_p == 0 ? 1 : top_p;
  sampling.min_p = min_p;
  sampling.repetition_penalty = repetition_penalty == 0 ? 1 : repetition_penalty;
  sampling.seed = seed;
  return sampling;
}

void AddSamplingOptions(CLI::App& app, SamplingChoice& choice) {
  constexpr auto kTopKMax = static_cast<uint32_t>(std::numeric_limits<int32_t>::max());
  app.add_option("--max-tokens", choice.max_tokens, "most tokens of an answer; 0: 1,024 [0]");
  app.add_option("--temperature", choice.temperature, "0 takes the most likely token [0]")
      ->check(CLI::Range(0.0f, engine::kTemperatureMax));
  app.add_option("--top-k", choice.top_k, "tokens to choose from; 0: all [0]")
      ->check(CLI::Range(0u, kTopKMax));
  app.add_option("--top-p", choice.top_p, "probability to choose from; 0 or 1: all [0]")
      ->check(CLI::Range(0.0f, 1.0f));
  app.add_option("--min-p", choice.min_p, "least probability, relative to the likeliest [0]")
      ->check(CLI::Range(0.0f, 1.0f));
  app.add_option("--repetition-penalty", choice.repetition_penalty, "1 or 0: none [0]")
      ->check(CLI::Range(0.0f, engine::kRepetitionPenaltyMax));
  app.add_option("--repetition-window", choice.repetition_window,
                 "tokens before a drawn one that the penalty looks at; 0: 65,536 [0]")
      ->check(CLI::Range(0u, engine::kRepetitionWindowMax));
  app.add_option("--seed", choice.seed, "of the sampling [0]");
}

}  // namespace mneme::cli

// Flags that say how an answer is drawn and how long it gets, the same in run and chat.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace mneme::cli {

// 0 stands for the default of each, as in the protocol.
struct SamplingChoice {
  uint32_t max_tokens = 0;  // 0: engine::EngineOptions::generated_tokens_default
  float temperature = 0;
  uint32_t top_k = 0;
  float top_p = 0;
  float min_p = 0;
  float repetition_penalty = 0;
  uint32_t repetition_window = 0;
  uint64_t seed = 0;

  uint32_t tokens_max() const;
  // Without a position and without what a penalty sees.
  kernels::Sampling sampling() const;
};

void AddSamplingOptions(CLI::App& app, SamplingChoice& choice);

}  // namespace mneme::cli

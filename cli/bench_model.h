// What `mneme bench` measures with: a model, and tokens to feed it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/local_model.h"

namespace mneme::cli {

struct BenchModel {
  LocalModelChoice choice;
  std::string shape;  // instead of the choice's folder: a published size with random weights
};

Result<std::unique_ptr<model::LocalModel>> MakeBenchModel(const BenchModel& model);

// Tokens that say nothing, but all over the vocabulary.
std::vector<int32_t> AnyTokens(size_t count, int vocab);

}  // namespace mneme::cli

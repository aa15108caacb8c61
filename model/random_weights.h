// RandomWeights: weights of a model of some size, all random, for measuring what the size costs.
// Layers of one kind share their numbers here; packed, each layer has bytes of its own.
//
// The numbers are small enough that activations stay finite however deep the model, and decays slow
// enough that history matters.
//
// Owns:     the numbers, which its views look into; needed only until the model is packed.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace mneme::model {

// The sizes of a published model by its name there, in lower case: "0.8b". kInvalidArgument,
// naming those that are known, for another.
Result<ModelConfig> PublishedShape(std::string_view name);

class RandomWeights {
 public:
  // bf16, the same for the same configuration.
  explicit RandomWeights(const ModelConfig& config);
  RandomWeights(const RandomWeights&) = delete;
  RandomWeights& operator=(const RandomWeights&) = delete;

  const Weights& weights() const { return weights_; }

 private:
  TensorView Random(int rows, int cols, float scale);
  TensorView Filled(int size, float value);
  LinearWeights Linear(const ModelConfig& config);
  AttentionWeights Attention(const ModelConfig& config);
  TensorView Take(std::vector<uint16_t> numbers, int rows, int cols);

  std::vector<std::vector<uint16_t>> numbers_;
  uint64_t state_ = 1;
  Weights weights_;
};

}  // namespace mneme::model

// RouterMetadata: the text values of router.safetensors and mixing.safetensors as numbers, each
// within its limits. router_weights.h says what they mean and how they are written.
//
// Errors:   kInvalidArgument, naming file, key, what was expected and what was found
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace mneme::model {

struct RouterMetadata {
  int window_tokens = 0;           // hla only
  int pages_max = 0;               // hla only
  float theta = 0;                 // hla only
  std::vector<bool> closed;        // [layers]
  std::vector<int> recent_chunks;  // [layers]
};

// `reader` is "hla" or "mhla": what the file must say of itself.
Result<RouterMetadata> ParseRouterMetadata(const std::map<std::string, std::string>& metadata,
                                           std::string_view file, std::string_view reader,
                                           const ModelConfig& config);

}  // namespace mneme::model

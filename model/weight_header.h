// WeightHeader: what the JSON header of a safetensors file says, before it is compared with the
// file's bytes. Read as a stream of tokens into a fixed form, so that a hostile header cannot make
// more of itself than its own size.
//
// Errors:   kCorruption       not JSON of the header's form, or a name twice
//           kInvalidArgument  a limit of weight_file.h is passed
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/weight_file.h"

namespace mneme::model {

struct DeclaredTensor {
  StoredTensor tensor;  // without bytes
  uint64_t begin = 0;   // data_offsets
  uint64_t end = 0;
};

struct WeightHeader {
  std::vector<DeclaredTensor> tensors;  // in the header's order
  std::map<std::string, std::string> metadata;
};

Result<WeightHeader> ParseWeightHeader(std::string_view text, std::string_view file);

}  // namespace mneme::model

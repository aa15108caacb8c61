// TensorTaker takes the tensors of a model out of its weight files by name, each in the shape that
// the configuration calls for, and knows afterwards which nobody asked for.
//
// Owns:     nothing; the folder must outlive it and the views.
// Errors:   kNotFound         a tensor is missing
//           kInvalidArgument  a tensor has another shape or type than expected, or is unknown
//           The message names file, tensor, what was expected and what was found.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/tensor.h"
#include "model/weight_folder.h"

namespace mneme::model {

// What one tensor must be to be used.
struct WantedTensor {
  std::string_view name;
  std::vector<uint64_t> shape;
};

// The tensor as a view: the first dimension is rows, the product of the rest cols; a vector is one
// row. kInvalidArgument where shape or type differ, with `file` in the message.
Result<kernels::TensorView> ViewOf(const StoredTensor& tensor, std::string_view file,
                                   const WantedTensor& wanted);

class TensorTaker {
 public:
  explicit TensorTaker(const WeightFolder& folder) : folder_(folder) {}

  bool Has(std::string_view name) const { return folder_.Find(name).tensor != nullptr; }
  Status Take(kernels::TensorView& view, std::string name, std::vector<uint64_t> shape);

  // Counts the tensors that were not taken and that `skipped` knows; kInvalidArgument for any
  // other, which is no part of `model` ("a dense Qwen3.5 model with 24 layers").
  Result<uint64_t> CountSkipped(const std::function<bool(std::string_view)>& skipped,
                                std::string_view model) const;

  uint64_t parameters() const { return parameters_; }      // numbers taken
  uint64_t stored_bytes() const { return stored_bytes_; }  // their bytes in the files
  const std::string& first_file() const { return folder_.files().front().name(); }

 private:
  const WeightFolder& folder_;
  std::set<std::string, std::less<>> used_;
  uint64_t parameters_ = 0;
  uint64_t stored_bytes_ = 0;
};

}  // namespace mneme::model

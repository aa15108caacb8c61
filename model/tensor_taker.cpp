#include "model/tensor_taker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "model/strict_json.h"

namespace mneme::model {

using kernels::TensorView;

Status TensorTaker::Take(TensorView& view, std::string name, std::vector<uint64_t> shape) {
  const WeightFolder::Found found = folder_.Find(name);
  if (found.tensor == nullptr)
    return Fail(ErrorCode::kNotFound, "{}: tensor {}: expected shape [{}], found no such tensor",
                first_file(), name, fmt::join(shape, ", "));
  auto taken = ViewOf(*found.tensor, found.file->name(), {name, std::move(shape)});
  if (!taken) return Fail(std::move(taken).error());
  view = *taken;
  parameters_ += static_cast<uint64_t>(view.elements());
  stored_bytes_ += view.size_bytes();
  used_.insert(std::move(name));
  return {};
}

Result<uint64_t> TensorTaker::CountSkipped(const std::function<bool(std::string_view)>& skipped,
                                           std::string_view model) const {
  uint64_t count = 0;
  for (const WeightFile& file : folder_.files()) {
    for (const StoredTensor& tensor : file.tensors()) {
      if (used_.contains(tensor.name)) continue;
      if (!skipped(tensor.name))
        return Fail(ErrorCode::kInvalidArgument,
                    "{}: tensor {}: expected only tensors of {}, found this one of shape {}",
                    file.name(), Shown(tensor.name), model, tensor.ShapeText());
      ++count;
    }
  }
  return count;
}

Result<TensorView> ViewOf(const StoredTensor& tensor, std::string_view file,
                          const WantedTensor& wanted) {
  const auto& shape = wanted.shape;
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(),
                  tensor.shape.begin() + tensor.rank))
    return Fail(ErrorCode::kInvalidArgument, "{}: tensor {}: expected shape [{}], found {}", file,
                wanted.name, fmt::join(shape, ", "), tensor.ShapeText());
  const auto dtype = tensor.kernel_dtype();
  if (!dtype)
    return Fail(ErrorCode::kInvalidArgument, "{}: tensor {}: expected F32, BF16 or F16, found {}",
                file, wanted.name, NameOf(tensor.dtype));
  TensorView view;
  view.bytes = tensor.bytes.data();
  view.dtype = *dtype;
  view.rows = shape.size() <= 1 ? 1 : static_cast<int64_t>(shape[0]);
  view.cols = 1;
  for (size_t i = shape.size() <= 1 ? 0 : 1; i < shape.size(); ++i)
    view.cols *= static_cast<int64_t>(shape[i]);
  return view;
}

}  // namespace mneme::model

#include "cli/bench_model.h"

namespace mneme::cli {

Result<std::unique_ptr<model::LocalModel>> MakeBenchModel(const BenchModel& model) {
  if (!model.shape.empty()) {
    if (!model.choice.reader.empty() && model.choice.reader != "native")
      return Fail(ErrorCode::kInvalidArgument, "reader {}: a --shape has no router; use native",
                  model.choice.reader);
    return MakeRandomModel(model.shape, model.choice);
  }
  const auto folder = model::ModelFolder::Open(model.choice.folder);
  MNEME_TRY(folder);
  return LoadLocalModel(*folder, model.choice);
}

std::vector<int32_t> AnyTokens(size_t count, int vocab) {
  std::vector<int32_t> tokens(count);
  uint32_t state = 1;
  for (int32_t& token : tokens) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab));
  }
  return tokens;
}

}  // namespace mneme::cli

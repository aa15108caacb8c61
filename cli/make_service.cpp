#include "cli/make_service.h"

namespace mneme::cli {

Result<std::unique_ptr<engine::Service>> MakeService(const v1::ServerConfig& config) {
  return Fail(Reason::kNotBuilt, "model {}: this build has no engine", config.model_dir());
}

}  // namespace mneme::cli

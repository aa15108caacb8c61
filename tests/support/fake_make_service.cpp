// Lets the `mneme` binary of the system tests serve the service that echoes.
#include <cstdlib>
#include <string>

#include "cli/make_service.h"
#include "tests/support/fake_service.h"

namespace mneme::cli {

Result<std::unique_ptr<engine::Service>> MakeService(const v1::ServerConfig& config,
                                                     const StartOptions& /*start*/) {
  if (config.store_dir() == "in-use") return Fail(ErrorCode::kConflict, "the store is in use");
  const char* token_us = std::getenv("FAKE_TOKEN_US");
  return std::make_unique<support::FakeService>(
      support::FakeServiceOptions{.token_us = token_us == nullptr ? 0 : std::stol(token_us),
                                  .token_bytes = 0,
                                  .queue_max = config.limits().queue_max()});
}

}  // namespace mneme::cli

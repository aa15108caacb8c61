// The engine behind `mneme serve`, made from its configuration. Apart from serve.cpp so that tests
// can serve something smaller.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/service.h"
#include "proto/mneme/v1/config.pb.h"

namespace mneme::cli {

// What is said once, at a start, and never stands in a configuration.
struct StartOptions {
  // Serve what is left where acknowledged turns were lost.
  bool accept_loss = false;
};

// Loads the model and opens the store, saying on standard error how far it is.
Result<std::unique_ptr<engine::Service>> MakeService(const v1::ServerConfig& config,
                                                     const StartOptions& start = {});

}  // namespace mneme::cli

// Service is what the server asks of the engine: take a call, answer it through its events.
//
// Threads:  Submit and Health from any; they never wait for the engine. Everything else happens on
//           the engine's own threads.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/call.h"

namespace mneme::engine {

class Service {
 public:
  virtual ~Service() = default;

  // Queues the call, or refuses it at once:
  //   kResourceExhausted  the queue is full (retry_after_ms is set)
  //   draining            the server is stopping
  // After success the call ends with exactly one final event, whatever happens.
  virtual Status Submit(std::shared_ptr<Call> call) = 0;

  // State (those of Health in event.proto), model, reader and counts. The server adds the rest, and
  // says "draining" by itself.
  virtual v1::Health Health() = 0;
};

}  // namespace mneme::engine

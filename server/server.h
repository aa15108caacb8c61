// Server serves a Service over TCP: it listens, keeps its connections, and stops without losing an
// answer.
//
// Owns:     the I/O threads, the listener and every connection. The Service outlives it.
// Threads:  each function from one thread at a time. Connections live on the I/O threads, one
// strand
//           each; the engine's threads only push events and wake them.
// Order:    Make listens and accepts; Drain or the destructor stops. Stopping is the reverse of
//           starting: listener, connections, I/O threads.
// Errors:   kPermissionDenied  the address is not of this machine (keys and TLS do not exist yet)
//           kInvalidArgument   the address cannot be read
//           kUnavailable       the port is taken
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "engine/event_stream.h"
#include "engine/service.h"
#include "proto/frame.h"

namespace mneme::server {

struct ConnectionOptions {
  proto::FrameLimits frame;
  engine::EventStreamOptions output;
  uint32_t requests_max = 64;            // in flight on one connection
  uint32_t generated_tokens_max = 4096;  // of one request
  int64_t frame_ms = 60'000;             // a frame that began arriving is whole by then
  int64_t idle_ms = 3'600'000;           // nothing asked and nothing in flight
  int64_t linger_ms = 1'000;             // for the client to read the last word
  int send_buffer_bytes = 128 * 1024;    // the kernel's, so that a slow reader is seen early
};

struct ServerOptions {
  std::string address = "127.0.0.1";  // or ::1, or localhost
  uint16_t port = 7411;               // 0: any free one
  uint32_t io_threads = 2;
  uint32_t connections_max = 10'000;  // lowered where the process may not open that many files
  int64_t drain_ms = 30'000;
  std::string version = "0.1.0";
  ConnectionOptions connection;
};

// How a drain ended.
enum class DrainEnd : uint8_t {
  kFinished,  // every request in flight got its last event
  kAborted,   // drain_ms passed: the rest were cancelled and answered
  kCutShort,  // told to stop now, or a request did not end even so
};

class Server {
 public:
  // What Make would say of address and port, before anything is loaded for it. Binds, and gives
  // back at once.
  static Status CheckCanListen(const ServerOptions& options);

  static Result<std::unique_ptr<Server>> Make(const ServerOptions& options,
                                              engine::Service& service, Clock& clock = RealClock());
  // Cuts what is left.
  ~Server();

  uint16_t port() const;
  uint32_t connections_max() const;
  uint32_t connections() const;
  uint32_t requests_in_flight() const;

  // Stops accepting, answers new requests with `draining`, waits for those in flight, cancels them
  // after drain_ms, and closes every connection. `now` cuts it short from another thread.
  DrainEnd Drain(const std::atomic<bool>& now);

  // Waits for SIGTERM, SIGINT or SIGHUP (unless that is ignored), then drains; a second signal cuts
  // the drain short.
  DrainEnd RunUntilSignal();

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);
  void StartThreads();

  std::unique_ptr<Parts> parts_;
};

}  // namespace mneme::server

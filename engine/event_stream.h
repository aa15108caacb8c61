// EventStream is the bounded queue of events from the engine to one connection.
//
// Owns:     the queued events. Held by the connection and by every call it has in flight.
// Threads:  Push from the engine; everything else from the reader's side; Close from either.
// Limits:   at pause_bytes the engine stops generating for this reader until it has caught up; at
//           bytes_max, or after stall_ms without a Take, the stream closes itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "proto/mneme/v1/event.pb.h"

namespace mneme::engine {

struct EventStreamOptions {
  size_t pause_bytes = 256 * 1024;
  size_t bytes_max = 1024 * 1024;
  int64_t stall_ms = 30'000;
};

class EventStream {
 public:
  EventStream(EventStreamOptions options, Clock& clock) : options_(options), clock_(clock) {}

  // Queues an event and wakes the reader. False when the stream is closed or has just closed itself
  // because its reader is too slow: the caller stops its work.
  bool Push(v1::Event event);

  // The engine generates for this stream only while this is false.
  bool paused() const;
  bool closed() const;

  // Called, on the pushing thread and without a lock held, whenever something was queued or the
  // stream closed. Set once, before the first Push.
  void SetWake(std::function<void()> wake) { wake_ = std::move(wake); }

  // All queued events, in order. They count as buffered until Sent is called with their bytes.
  std::vector<v1::Event> Take();
  void Sent(size_t bytes);

  // The reader has gone; nothing more is queued and Push answers false.
  void Close();

 private:
  const EventStreamOptions options_;
  Clock& clock_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::vector<v1::Event> events_;
  size_t buffered_bytes_ = 0;  // queued and taken but not yet sent
  int64_t progress_us_ = 0;    // when the reader last took or sent something
  bool closed_ = false;
};

}  // namespace mneme::engine

// EventStream is the bounded queue of events from the engine to one connection.
//
// Owns:     the queued events. Held by the connection and by every call it has in flight.
// Units:    an event counts as the bytes of its frame, from Push until they were sent.
// Threads:  Push, paused, closed, Close and CutOff from any; SetWake, Take, Sent and Detach from
//           the reader
// Limits:   at pause_bytes the engine stops generating for this reader until it has caught up; at
//           bytes_max, or after stall_ms without a Take or Sent while something waits, the stream
//           closes itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
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
  bool paused();
  bool closed();
  // The limit that its reader was too slow for, by its name in the settings or `place_wanted`;
  // empty where the stream was not closed for that.
  std::string_view slow_for();
  // The most one event may hold; Call answers too_large in place of a longer one.
  size_t event_bytes_max() const { return options_.bytes_max; }

  // `wake` is called, on the thread that pushed or closed, whenever something was queued or the
  // stream closed. It must not block, nor call this stream. Set once, before the first Push.
  void SetWake(std::function<void()> wake);

  // All queued events, in order. They count as buffered until Sent is called with their bytes.
  std::vector<v1::Event> Take();
  void Sent(size_t bytes);

  // Nothing more is queued, Push answers false, and the reader is woken.
  void Close();
  // As it closes itself for a slow reader: others wait for what this one's answer holds.
  void CutOff();
  // The reader has gone: as Close, and once this returns `wake` is not running and never will.
  void Detach();

 private:
  // Both with mutex_ held.
  void CloseIfStalled();
  void CloseFor(std::string_view limit);
  void Wake();

  const EventStreamOptions options_;
  Clock& clock_;
  std::mutex wake_mutex_;  // held while wake_ runs, so that Detach can wait for it
  std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<v1::Event> events_;
  size_t buffered_bytes_ = 0;  // queued and taken but not yet sent
  int64_t progress_us_ = 0;    // when the reader last took or sent something
  bool closed_ = false;
  std::string_view slow_for_;
};

}  // namespace mneme::engine

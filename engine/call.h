// Call is one request in flight: what was asked, where the answer goes, and whether anybody still
// wants it.
//
// Owns:     the request. Shared by the connection, which may cancel it, and the engine.
// Threads:  request(), Emit, Finish and Fail from the engine; the rest from any.
// Bugs:     finishing twice, or emitting after the end, aborts (MNEME_CHECK).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.h"
#include "engine/event_stream.h"
#include "proto/mneme/v1/session.pb.h"

namespace mneme::engine {

class Call {
 public:
  // `deadline_us` is monotonic, 0 for none.
  Call(v1::Request request, std::shared_ptr<EventStream> stream, int64_t deadline_us)
      : request_(std::move(request)), stream_(std::move(stream)), deadline_us_(deadline_us) {}

  const v1::Request& request() const { return request_; }
  int64_t deadline_us() const { return deadline_us_; }

  // Sends an event of this request; false when nobody reads any more.
  bool Emit(v1::Event event);
  // The last event of this request. Exactly one of these ends a call, also when nobody reads. An
  // answer longer than the stream can ever hold becomes too_large.
  void Finish(v1::Event event);
  void Fail(const Error& error);
  // With head_moved: `head` is where the session really ends.
  void Fail(const Error& error, const v1::Head& head);
  bool finished() const { return finished_.load(); }

  // The client asked to stop; the engine ends the call at its next step.
  void Cancel() { cancelled_.store(true); }
  bool cancelled() const { return cancelled_.load(); }
  // The deadline has passed; the engine ends the call at its next step.
  bool expired(int64_t now_us) const { return deadline_us_ != 0 && now_us >= deadline_us_; }
  // The connection has gone, or its reader was too slow for too long.
  bool disconnected() const { return stream_->closed(); }
  // The reader is too slow for more events just now.
  bool paused() const { return stream_->paused(); }
  // Others wait for what this call holds and its reader keeps: it is disconnected.
  void CutOffReader() { stream_->CutOff(); }

 private:
  const v1::Request request_;
  const std::shared_ptr<EventStream> stream_;
  const int64_t deadline_us_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> finished_{false};
};

}  // namespace mneme::engine

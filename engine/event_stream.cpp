#include "engine/event_stream.h"

#include <algorithm>
#include <utility>

#include "proto/frame.h"

namespace mneme::engine {

bool EventStream::Push(v1::Event event) {
  const size_t bytes = proto::FrameBytes(event);
  bool accepted = false;
  {
    std::lock_guard lock(mutex_);
    CloseIfStalled();
    if (!closed_ && bytes > options_.bytes_max - std::min(buffered_bytes_, options_.bytes_max))
      CloseFor("output_max_bytes");
    if (closed_) {
      events_.clear();
    } else {
      if (buffered_bytes_ == 0) progress_us_ = clock_.MonotonicUs();
      events_.push_back(std::move(event));
      buffered_bytes_ += bytes;
      accepted = true;
    }
  }
  Wake();
  return accepted;
}

bool EventStream::paused() {
  std::lock_guard lock(mutex_);
  CloseIfStalled();
  return buffered_bytes_ >= options_.pause_bytes;
}

bool EventStream::closed() {
  std::lock_guard lock(mutex_);
  CloseIfStalled();
  return closed_;
}

std::string_view EventStream::slow_for() {
  std::lock_guard lock(mutex_);
  CloseIfStalled();
  return slow_for_;
}

void EventStream::SetWake(std::function<void()> wake) {
  std::lock_guard lock(wake_mutex_);
  wake_ = std::move(wake);
}

std::vector<v1::Event> EventStream::Take() {
  std::lock_guard lock(mutex_);
  progress_us_ = clock_.MonotonicUs();
  return std::exchange(events_, {});
}

void EventStream::Sent(size_t bytes) {
  std::lock_guard lock(mutex_);
  progress_us_ = clock_.MonotonicUs();
  buffered_bytes_ -= std::min(bytes, buffered_bytes_);
}

void EventStream::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  Wake();
}

void EventStream::CutOff() {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) CloseFor("place_wanted");
  }
  Wake();
}

void EventStream::Detach() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    events_.clear();
  }
  std::lock_guard lock(wake_mutex_);
  wake_ = nullptr;
}

void EventStream::CloseIfStalled() {
  if (closed_ || buffered_bytes_ == 0) return;
  if (clock_.MonotonicUs() - progress_us_ <= options_.stall_ms * 1000) return;
  CloseFor("output_stall_ms");
}

void EventStream::CloseFor(std::string_view limit) {
  closed_ = true;
  slow_for_ = limit;
  events_.clear();
}

void EventStream::Wake() {
  std::lock_guard lock(wake_mutex_);
  if (wake_) wake_();
}

}  // namespace mneme::engine

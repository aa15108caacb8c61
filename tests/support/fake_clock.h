// A clock that stands still until a test moves it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace mneme::support {

class FakeClock : public Clock {
 public:
  int64_t MonotonicUs() override { return now_us_.load(); }
  int64_t WallUs() override { return now_us_.load(); }
  void AdvanceMs(int64_t milliseconds) { now_us_ += milliseconds * 1000; }

 private:
  std::atomic<int64_t> now_us_{1'000'000};
};

}  // namespace mneme::support

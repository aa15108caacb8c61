// Clock tells time. Deadlines, leases and rates use the monotonic time; the wall time is only ever
// shown or stored for people. Tests bring their own clock.
#pragma once

#include <cstdint>

namespace mneme {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t MonotonicUs() = 0;  // microseconds since some fixed moment
  virtual int64_t WallUs() = 0;       // microseconds since 1970-01-01 UTC
};

// The machine's clock. Threads: any.
Clock& RealClock();

}  // namespace mneme

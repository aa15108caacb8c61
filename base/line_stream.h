// Lines to a descriptor that others read: a file on a full disk, a pipe whose reader left or does
// not read. Whoever writes a line is never held up for long by them: a line that does not go
// through is counted, and the count is said where lines go through again.
//
// Owns:     nothing; the descriptor stays open.
// Threads:  one at a time.
// Signals:  SIGPIPE and SIGXFSZ must be ignored, or the system ends the process first.
#pragma once

#include <cstdint>
#include <string_view>

namespace mneme {

class LineStream {
 public:
  // `wait_ms`: longest time that one line waits for a slow reader. The lines after one that was
  // lost do not wait.
  explicit LineStream(int descriptor, int wait_ms = 200)
      : descriptor_(descriptor), wait_ms_(wait_ms) {}

  // A line with its end. False where it was lost.
  bool Write(std::string_view line);

  // Lines lost since the last SaidLost.
  uint64_t lost() const { return lost_; }
  void SaidLost() { lost_ = 0; }

 private:
  bool WritePart(std::string_view part);

  int descriptor_;
  int wait_ms_;
  uint64_t lost_ = 0;
  bool cut_ = false;  // the start of a lost line was written
};

}  // namespace mneme

// RepetitionWindow is what a repetition penalty looks at: the ids among the last so many tokens of
// a session, earlier turns, prompt and answer alike. It depends on the log alone, so a restart or a
// fork draws the same.
//
// Threads:  engine thread only.
// Cost:     a token that enters or leaves moves up to all distinct ids, 4 bytes each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

namespace mneme::engine {

inline constexpr uint32_t kRepetitionWindowMax = 65'536;  // tokens, and what 0 stands for

class RepetitionWindow {
 public:
  explicit RepetitionWindow(size_t tokens_max) : tokens_max_(tokens_max) {}

  // The next token; the oldest beyond the window is forgotten.
  void Push(int32_t token);
  void Push(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) Push(token);
  }

  // Each once, in rising order. Good until the next Push.
  std::span<const int32_t> ids() const { return ids_; }

 private:
  size_t tokens_max_;
  std::deque<int32_t> tokens_;
  std::unordered_map<int32_t, uint32_t> counts_;  // of each id in tokens_
  std::vector<int32_t> ids_;                      // the keys of counts_, sorted
};

}  // namespace mneme::engine

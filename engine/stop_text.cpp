#include "engine/stop_text.h"

#include <algorithm>
#include <utility>

namespace mneme::engine {

std::string StopText::Push(std::string_view text) {
  if (hit_) return {};
  held_.append(text);
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    hit_ = true;
    std::string shown = held_.substr(0, first);
    held_.clear();
    return shown;
  }
  // The longest end of the text that begins a stop string.
  size_t kept = 0;
  for (const std::string& stop : stops_) {
    for (size_t bytes = std::min(stop.size() - 1, held_.size()); bytes > kept; --bytes) {
      if (held_.compare(held_.size() - bytes, bytes, stop, 0, bytes) == 0) kept = bytes;
    }
  }
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopText::Finish() { return hit_ ? std::string() : std::exchange(held_, {}); }

}  // namespace mneme::engine

// StopText cuts a stream of text before the first stop string that appears in it, and holds back
// what may turn out to be the beginning of one.
//
// Threads:  one at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mneme::engine {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes more text and returns what can be shown of all so far; after a stop string, nothing.
  std::string Push(std::string_view text);

  // What was held back, when the stream ended without a stop string.
  std::string Finish();

  bool hit() const { return hit_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool hit_ = false;
};

}  // namespace mneme::engine

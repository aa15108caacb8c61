#include "engine/repetition_window.h"

#include <algorithm>

namespace mneme::engine {

void RepetitionWindow::Push(int32_t token) {
  tokens_.push_back(token);
  if (++counts_[token] == 1) ids_.insert(std::lower_bound(ids_.begin(), ids_.end(), token), token);
  if (tokens_.size() <= tokens_max_) return;
  const auto oldest = counts_.find(tokens_.front());
  tokens_.pop_front();
  if (--oldest->second > 0) return;
  ids_.erase(std::lower_bound(ids_.begin(), ids_.end(), oldest->first));
  counts_.erase(oldest);
}

}  // namespace mneme::engine

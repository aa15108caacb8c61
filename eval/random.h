// Random: the numbers that an evaluation is made from. The same seed gives the same histories on
// every machine, which the distributions of the standard library do not promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace mneme::eval {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // 0 .. count - 1; count > 0. The bias of the remainder is below count / 2^64.
  size_t Below(size_t count) { return static_cast<size_t>(engine_() % count); }
  // first .. last, both included.
  int64_t Between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(Below(static_cast<size_t>(last - first + 1)));
  }
  // In [0, 1).
  double Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

  template <typename T>
  const T& Pick(const std::vector<T>& items) {
    return items[Below(items.size())];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace mneme::eval

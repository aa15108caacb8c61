#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace mneme {

void CheckFailed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "mneme: bug: %s:%d: %s does not hold: %s\n", file, line, condition,
               values.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace mneme

// The BLAS library is compared with the processor: one that has AVX2 must not get the kernels of
// 2004, whatever its model number.
#include "kernels/cpu/blas_core.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cpu/cpu_stream.h"

namespace mneme::kernels::cpu {
namespace {

TEST(BlasCoreTest, NeverUsesTheOldestKernelsOnAProcessorThatHasMore) {
  CpuStream stream(1);
  EXPECT_FALSE(BlasCore().empty());
#if defined(__x86_64__)
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr)
    GTEST_SKIP() << "OPENBLAS_CORETYPE is set and wins";
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_NE(BlasCore(), "Prescott");
  }
#endif
}

}  // namespace
}  // namespace mneme::kernels::cpu

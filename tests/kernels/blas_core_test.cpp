// The BLAS library is compared with the processor: one that has AVX2 must not get the kernels of
// 2004, whatever its model number.
#include "kernels/cpu/blas_core.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

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

size_t AddressSpaceBytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(getpagesize());
}

TEST(BlasCoreTest, TakesABufferForEachThreadOnce) {
  CpuStream stream(1);
  ASSERT_TRUE(TakeBlasBuffers(3));
  const size_t before = AddressSpaceBytes();
  ASSERT_TRUE(TakeBlasBuffers(2));
  ASSERT_TRUE(TakeBlasBuffers(3));
  EXPECT_EQ(AddressSpaceBytes(), before) << "they are there";
  ASSERT_TRUE(TakeBlasBuffers(5));
  EXPECT_GE(AddressSpaceBytes(), before + 2 * kBlasBufferBytes);
}

}  // namespace
}  // namespace mneme::kernels::cpu

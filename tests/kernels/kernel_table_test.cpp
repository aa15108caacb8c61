// The CPU's table: streams are made or refused, and the dense entries run through it.
#include "kernels/kernel_table.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

namespace mneme::kernels {
namespace {

TEST(KernelTableTest, RefusesStreamsWithoutThreads) {
  EXPECT_TRUE(CpuKernels().make_stream(2));
  for (const int threads : {0, -1, 100'000}) {
    const auto stream = CpuKernels().make_stream(threads);
    ASSERT_FALSE(stream);
    EXPECT_EQ(stream.error().message(),
              "make stream: " + std::to_string(threads) + " threads, at most 1024");
  }
}

TEST(KernelTableTest, LeavesNoEntryOut) {
  // Every member after the name is a pointer to a function.
  const KernelTable& table = CpuKernels();
  constexpr size_t kEntries = (sizeof(KernelTable) - sizeof(table.name)) / sizeof(void*);
  void* entries[kEntries];
  std::memcpy(entries, reinterpret_cast<const std::byte*>(&table) + sizeof(table.name),
              sizeof(entries));
  for (size_t i = 0; i < kEntries; ++i) EXPECT_NE(entries[i], nullptr) << "entry " << i;
}

TEST(KernelTableTest, RunsAnEntryOnAStreamOfItsOwn) {
  const KernelTable& table = CpuKernels();
  EXPECT_STREQ(table.name, "cpu");
  const auto stream = table.make_stream(1);
  ASSERT_TRUE(stream);
  const float weights[2] = {2.0f, 3.0f};
  const TensorView view{reinterpret_cast<const std::byte*>(weights), Dtype::kF32, 1, 2};
  const auto packed = table.pack_weights({&view, 1});
  ASSERT_TRUE(packed);
  StepTable step;
  step.rows = 1;
  const float in[2] = {10.0f, 1.0f};
  float x = 0.5f;
  ASSERT_TRUE(table.project_out({&step, packed->get(), in, &x}, **stream));
  EXPECT_EQ(x, 23.5f);
}

}  // namespace
}  // namespace mneme::kernels

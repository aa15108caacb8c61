// CpuStream: the threads and the scratch memory that the CPU ops run with.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "kernels/stream.h"
#include "kernels/thread_pool.h"

namespace mneme::kernels::cpu {

// Scratch per thread; memory that no op touches is never resident.
inline constexpr size_t kScratchFloats = size_t{4} << 20;

class CpuStream : public Stream {
 public:
  explicit CpuStream(int threads);

  ThreadPool& pool() { return pool_; }

  // [kScratchFloats], 64-byte aligned, the thread's own; contents are unspecified between ops.
  std::span<float> scratch(int thread) {
    return {scratch_[static_cast<size_t>(thread)].get(), kScratchFloats};
  }

  // Scratch that all threads of one op share, 64-byte aligned; grows to the largest op. Called
  // outside loops, once in an op; contents are unspecified.
  float* shared(size_t floats);

 private:
  struct Free {
    void operator()(float* floats) const { ::operator delete[](floats, std::align_val_t(64)); }
  };

  ThreadPool pool_;
  std::vector<std::unique_ptr<float[], Free>> scratch_;
  std::unique_ptr<float[], Free> shared_;
  size_t shared_floats_ = 0;
};

// The CPU backend's view of a stream handed through the table.
inline CpuStream& AsCpu(Stream& stream) { return static_cast<CpuStream&>(stream); }

}  // namespace mneme::kernels::cpu

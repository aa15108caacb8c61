#include "kernels/cpu/cpu_stream.h"

#include "kernels/cpu/blas_core.h"

namespace mneme::kernels::cpu {

CpuStream::CpuStream(int threads) : pool_(threads) {
  ChooseBlasCore();
  for (int thread = 0; thread < threads; ++thread) {
    scratch_.emplace_back(static_cast<float*>(
        ::operator new[](kScratchFloats * sizeof(float), std::align_val_t(64))));
  }
}

float* CpuStream::shared(size_t floats) {
  if (floats > shared_floats_) {
    shared_.reset();
    shared_floats_ = 0;
    shared_.reset(
        static_cast<float*>(::operator new[](floats * sizeof(float), std::align_val_t(64))));
    shared_floats_ = floats;
  }
  return shared_.get();
}

}  // namespace mneme::kernels::cpu

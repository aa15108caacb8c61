#include "kernels/cpu/cpu_stream.h"

namespace mneme::kernels::cpu {

CpuStream::CpuStream(int threads) : pool_(threads) {
  for (int thread = 0; thread < threads; ++thread) {
    scratch_.emplace_back(static_cast<float*>(
        ::operator new[](kScratchFloats * sizeof(float), std::align_val_t(64))));
  }
}

}  // namespace mneme::kernels::cpu

// The instruction sets our vector loops are compiled for. Each costs compile time and size, so only
// those that change the speed: AVX2 with FMA, AVX-512, and what every machine has.
//
// Include before anything of Highway, in files that use foreach_target.h.
#pragma once

// SVE's vectors have no size, so they cannot be kept in the arrays that our kernels use.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

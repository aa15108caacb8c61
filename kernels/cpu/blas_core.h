// The BLAS library chooses its kernels by the processor's model number and takes the oldest ones
// for a model it does not know: 24 instead of 120 GFLOP/s on one core of a 2023 server processor
// with OpenBLAS 0.3.21.
//
// Threads:  any; nobody may be inside a BLAS call the first time that
//           ChooseBlasCore is called.
#pragma once

#include <cstddef>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace mneme::kernels::cpu {

// Once per process: one thread per call, and where the library fell back to its oldest kernels, the
// ones that the processor's instruction sets allow. OPENBLAS_CORETYPE in the environment wins.
void ChooseBlasCore();

// The library takes a buffer of address space for each call that runs beside others, keeps it, and
// where it cannot have one asks for ever. So the buffers of `threads` calls, of at most
// kBlasBuffersMax, are taken here; they take no memory until they are used.
// kResourceExhausted: a limit of the process leaves no room for them; none was taken.
inline constexpr size_t kBlasBufferBytes = 128 * kMiB;
inline constexpr int kBlasBuffersMax = 64;
Status TakeBlasBuffers(int threads);

// What the library uses, as in `SkylakeX`; part of the numerics that a reply may name.
std::string BlasCore();

}  // namespace mneme::kernels::cpu

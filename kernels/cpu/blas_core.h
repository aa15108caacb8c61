// The BLAS library chooses its kernels by the processor's model number and takes the oldest ones
// for a model it does not know: 24 instead of 120 GFLOP/s on one core of a 2023 server processor
// with OpenBLAS 0.3.21.
//
// Threads:  ChooseBlasCore may be called from any; nobody may be inside a BLAS call the first time.
#pragma once

#include <string>

namespace mneme::kernels::cpu {

// Once per process: one thread per call, and where the library fell back to its oldest kernels, the
// ones that the processor's instruction sets allow. OPENBLAS_CORETYPE in the environment wins.
void ChooseBlasCore();

// What the library uses, as in `SkylakeX`; part of the numerics that a reply may name.
std::string BlasCore();

}  // namespace mneme::kernels::cpu

#include "kernels/cpu/blas_core.h"

#include <cblas.h>

#include <cstdlib>
#include <mutex>

// Exported by every OpenBLAS that chooses at run time, declared in none of its headers.
extern "C" {
__attribute__((weak)) void gotoblas_dynamic_init(void);
__attribute__((weak)) void gotoblas_dynamic_quit(void);
}

namespace mneme::kernels::cpu {
namespace {

// Null where the processor has nothing better than the fallback.
const char* CoreByInstructions() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

void Choose() {
  openblas_set_num_threads(1);
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  const char* core = CoreByInstructions();
  if (core == nullptr || std::getenv(kVariable) != nullptr || BlasCore() != "Prescott") return;
  if (gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr) return;
  setenv(kVariable, core, 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv(kVariable);
}

}  // namespace

void ChooseBlasCore() {
  static std::once_flag once;
  std::call_once(once, Choose);
}

std::string BlasCore() { return openblas_get_corename(); }

}  // namespace mneme::kernels::cpu

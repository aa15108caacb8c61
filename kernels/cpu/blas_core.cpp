#include "kernels/cpu/blas_core.h"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

// Exported by every OpenBLAS that chooses at run time, declared in none of its headers.
extern "C" {
__attribute__((weak)) void gotoblas_dynamic_init(void);
__attribute__((weak)) void gotoblas_dynamic_quit(void);
__attribute__((weak)) void* blas_memory_alloc(int);
__attribute__((weak)) void blas_memory_free(void*);
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

Status TakeBlasBuffers(int threads) {
  static std::mutex mutex;
  static int taken = 0;
  const std::lock_guard lock(mutex);
  threads = std::min(threads, kBlasBuffersMax);
  if (threads <= taken || blas_memory_alloc == nullptr || blas_memory_free == nullptr) return {};
  const size_t bytes = static_cast<size_t>(threads - taken) * kBlasBufferBytes;
  void* room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    return Fail(ErrorCode::kResourceExhausted,
                "matrix library: the system refuses {} bytes of address space, {} for each thread; "
                "use fewer threads, or raise the limit of the process (ulimit -v)",
                bytes, kBlasBufferBytes);
  munmap(room, bytes);
  std::vector<void*> buffers;  // all at once, so that each is another one
  for (int thread = 0; thread < threads; ++thread) buffers.push_back(blas_memory_alloc(0));
  for (void* buffer : buffers) blas_memory_free(buffer);
  taken = threads;
  return {};
}

std::string BlasCore() { return openblas_get_corename(); }

}  // namespace mneme::kernels::cpu

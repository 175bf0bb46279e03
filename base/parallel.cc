#include "base/parallel.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace cria {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kMaxThreads = 1;  // OpenMP's own barriers are not instrumented and look like races
#else
constexpr int kMaxThreads = 256;  // a limit against a typing error in CRIA_THREADS
#endif

int DefaultNumThreads() {
  if (const char* wish = std::getenv("CRIA_THREADS")) {
    const int n = std::atoi(wish);
    if (n >= 1) return std::min(n, kMaxThreads);
  }
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    return std::clamp(CPU_COUNT(&allowed), 1, kMaxThreads);
  }
  return 1;
}

std::atomic<int> num_threads_override{0};

}  // namespace

int NumThreads() {
  static const int default_num_threads = DefaultNumThreads();
  const int n = num_threads_override.load(std::memory_order_relaxed);
  return n > 0 ? n : default_num_threads;
}

void SetNumThreads(int num_threads) {
  num_threads_override = std::clamp(num_threads, 1, kMaxThreads);
}

int ThreadIndex() { return omp_get_thread_num(); }

namespace parallel_internal {

void Run(int64_t num_items, void (*body)(void*, int64_t), void* context) {
  const int num_threads = static_cast<int>(std::min<int64_t>(NumThreads(), num_items));
  if (num_threads <= 1 || omp_in_parallel()) {
    for (int64_t i = 0; i < num_items; ++i) body(context, i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(num_threads)
  for (int64_t i = 0; i < num_items; ++i) body(context, i);
}

}  // namespace parallel_internal
}  // namespace cria

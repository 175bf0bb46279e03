// Loops over OpenMP threads whose results do not depend on the number of threads.
//
//   ParallelFor(num_tiles, [&](int64_t tile) { ... });
//
// The work is cut into items by the caller, by sizes alone; threads only decide who runs an item.
// An item must write what no other item writes. Inside an item, a nested ParallelFor runs in place.
// Thread-safe. Cost of a call: a few microseconds when the threads are awake.

#ifndef CRIA_BASE_PARALLEL_H_
#define CRIA_BASE_PARALLEL_H_

#include <cstdint>
#include <utility>

namespace cria {

// The threads that loops use: CRIA_THREADS in the environment, else all cores that the process may
// use.
int NumThreads();

// Overrides NumThreads() from now on (a benchmark or a test compares 1 with 2). At least 1.
void SetNumThreads(int num_threads);

// The calling thread's number inside a loop, 0 <= index < NumThreads(); 0 outside.
int ThreadIndex();

namespace parallel_internal {
void Run(int64_t num_items, void (*body)(void*, int64_t), void* context);
}

// Runs body(i) once for each i in [0, num_items), items in contiguous runs per thread.
template <typename Body>
void ParallelFor(int64_t num_items, Body&& body) {
  parallel_internal::Run(
      num_items, [](void* context, int64_t i) { (*static_cast<Body*>(context))(i); }, &body);
}

}  // namespace cria

#endif  // CRIA_BASE_PARALLEL_H_

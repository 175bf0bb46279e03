#include "tests/fuzz/memory_count.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CRIA_COUNT_MEMORY 0
#else
#define CRIA_COUNT_MEMORY 1
#endif

namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> peak{0};
std::atomic<int64_t> start{0};

}  // namespace

#if CRIA_COUNT_MEMORY

namespace {

void Add(int64_t bytes) {
  const int64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

// A request that glibc refuses is as bad as one that it grants: it counts for a moment.
void* Counted(void* block, size_t wanted) {
  if (block != nullptr) {
    Add(static_cast<int64_t>(malloc_usable_size(block)));
  } else if (wanted <= static_cast<size_t>(std::numeric_limits<int64_t>::max() / 2)) {
    Add(static_cast<int64_t>(wanted));
    held.fetch_sub(static_cast<int64_t>(wanted), std::memory_order_relaxed);
  } else {
    peak.store(std::numeric_limits<int64_t>::max() / 2, std::memory_order_relaxed);
  }
  return block;
}

void Forget(void* block) {
  if (block == nullptr) return;
  held.fetch_sub(static_cast<int64_t>(malloc_usable_size(block)), std::memory_order_relaxed);
}

}  // namespace

extern "C" {

// glibc's own, under the names that it keeps for replacements.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);

void* malloc(size_t size) { return Counted(__libc_malloc(size), size); }

void* calloc(size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = std::numeric_limits<size_t>::max();
  return Counted(__libc_calloc(count, size), bytes);
}

void* realloc(void* block, size_t size) {
  const auto before = block == nullptr ? 0 : static_cast<int64_t>(malloc_usable_size(block));
  void* const moved = __libc_realloc(block, size);
  if (moved != nullptr || size == 0) held.fetch_sub(before, std::memory_order_relaxed);
  return size == 0 ? moved : Counted(moved, size);
}

void* memalign(size_t alignment, size_t size) {
  return Counted(__libc_memalign(alignment, size), size);
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

void free(void* block) {
  Forget(block);
  __libc_free(block);
}

}  // extern "C"

#endif  // CRIA_COUNT_MEMORY

namespace cria::fuzz {

bool Counts() { return CRIA_COUNT_MEMORY != 0; }

void ResetPeak() {
  start = held.load();
  peak = held.load();
}

size_t PeakBytes() {
  const int64_t above = peak.load() - start.load();
  return above > 0 ? static_cast<size_t>(above) : 0;
}

}  // namespace cria::fuzz

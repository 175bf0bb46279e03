// Waiting for a 32-bit word in memory that several processes share.
//
// Thread-safe. FutexWait may return at any time: the caller looks again.

#ifndef CRIA_COMM_SHM_FUTEX_H_
#define CRIA_COMM_SHM_FUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace cria::comm {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

// Sleeps while *word is `expected`, for `seconds` at most (below one).
inline void FutexWait(const std::atomic<uint32_t>* word, uint32_t expected, double seconds) {
  const timespec limit = {.tv_sec = 0, .tv_nsec = static_cast<long>(seconds * 1e9)};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

inline void FutexWakeAll(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// What a spinning loop does between two looks.
inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_FUTEX_H_

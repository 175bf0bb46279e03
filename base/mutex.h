// A mutex that clang's thread-safety analysis understands; std::mutex inside.
//
//   class Queue {
//     Mutex mu_;
//     std::deque<int> items_ CRIA_GUARDED_BY(mu_);
//     CondVar changed_;
//   };
//   MutexLock lock(&mu_);
//   while (items_.empty()) {
//     if (!changed_.WaitFor(&mu_, 0.1)) return DeadlineExceededError(...);
//   }
//
// Under g++ the annotations are nothing; `clang++ -Wthread-safety` checks them. std::mutex, because
// the thread sanitizer reports false races on absl::Mutex.
// Never hold a lock across I/O or a caller's callback.

#ifndef CRIA_BASE_MUTEX_H_
#define CRIA_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define CRIA_THREAD_ANNOTATION_(x) __attribute__((x))
#else
#define CRIA_THREAD_ANNOTATION_(x)
#endif

// On a member: read and written only with `mu` held.
#define CRIA_GUARDED_BY(mu) CRIA_THREAD_ANNOTATION_(guarded_by(mu))
// On a pointer member: what it points to is guarded.
#define CRIA_PT_GUARDED_BY(mu) CRIA_THREAD_ANNOTATION_(pt_guarded_by(mu))
// On a function: the caller holds `mu`, or must not hold it.
#define CRIA_REQUIRES(...) CRIA_THREAD_ANNOTATION_(requires_capability(__VA_ARGS__))
#define CRIA_EXCLUDES(...) CRIA_THREAD_ANNOTATION_(locks_excluded(__VA_ARGS__))

namespace cria {

class CRIA_THREAD_ANNOTATION_(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() CRIA_THREAD_ANNOTATION_(acquire_capability()) { mu_.lock(); }
  void Unlock() CRIA_THREAD_ANNOTATION_(release_capability()) { mu_.unlock(); }
  bool TryLock() CRIA_THREAD_ANNOTATION_(try_acquire_capability(true)) { return mu_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

// Holds the mutex as long as it lives.
class CRIA_THREAD_ANNOTATION_(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mu) CRIA_THREAD_ANNOTATION_(acquire_capability(mu)) : mu_(mu) {
    mu_->Lock();
  }
  ~MutexLock() CRIA_THREAD_ANNOTATION_(release_capability()) { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

// Waits for a change of what a mutex guards; always in a loop over the condition.
class CondVar {
 public:
  // Releases *mu, waits for a notification or until the time is over, takes *mu again. Returns
  // false when the time was over. There is no wait without a deadline.
  bool WaitFor(Mutex* mu, double seconds) CRIA_REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    const auto status = changed_.wait_for(lock, std::chrono::duration<double>(seconds));
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace cria

#endif  // CRIA_BASE_MUTEX_H_

// Tells a forked child that what it inherited belongs to its parent.
//
//   ForkGuard guard;
//   if (guard.InChild()) return FailedPreconditionError("this communicator is the parent's");
//
// The guard is a page that the kernel empties in a child (MADV_WIPEONFORK, Linux 4.14), so asking
// costs one load and no system call. Thread-safe.

#ifndef CRIA_COMM_ENGINE_FORK_GUARD_H_
#define CRIA_COMM_ENGINE_FORK_GUARD_H_

#include <cstdint>

namespace cria::comm {

class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool InChild() const { return page_ != nullptr && *page_ == 0; }

 private:
  volatile uint64_t* page_ = nullptr;  // nullptr: the kernel has no such page, nobody is warned
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_FORK_GUARD_H_

// Faults at the n-th file-system call, in any code of the process: kills and errors. For tests.
//
//   ArmFault({.at = 7, .action = FaultAction::kFail, .error_number = ENOSPC});
//   const Status status = SaveCheckpoint(...);
//   const int calls = DisarmFault();  // how many calls there were
//
// The library defines libc's mkdir, open (when it creates), pwrite, fsync, rename, renameat2,
// unlink, unlinkat and rmdir, which the linker prefers to libc's own; each counts, then does what
// libc does. Not thread-safe: one thread, one armed fault.

#ifndef CRIA_TESTS_UNIT_TRAINER_CHECKPOINT_SYSCALL_FAULTS_H_
#define CRIA_TESTS_UNIT_TRAINER_CHECKPOINT_SYSCALL_FAULTS_H_

namespace cria::trainer {

enum class FaultAction {
  kNone,        // count only
  kFail,        // the call fails with error_number
  kKill,        // SIGKILL instead of the call
  kKillHalfWay  // SIGKILL after the call; a pwrite has written half of its bytes
};

struct Fault {
  int at = 0;  // 0-based
  FaultAction action = FaultAction::kNone;
  int error_number = 0;
  bool sticky = false;       // kFail: every later call of its kind (same function) fails too
  bool no_exchange = false;  // renameat2 always fails with EINVAL, as on NFS; it does not count
};

void ArmFault(const Fault& fault);

// Stops it; returns the number of calls counted since ArmFault.
int DisarmFault();

}  // namespace cria::trainer

#endif  // CRIA_TESTS_UNIT_TRAINER_CHECKPOINT_SYSCALL_FAULTS_H_

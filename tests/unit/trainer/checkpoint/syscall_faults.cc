#include "tests/unit/trainer/checkpoint/syscall_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cria::trainer {
namespace {

bool g_armed = false;
Fault g_fault;
int g_num_calls = 0;
const char* g_sticky_function = nullptr;

void KillSelf() {
  ::syscall(SYS_kill, ::getpid(), SIGKILL);
  ::_exit(99);
}

// Counts the call. True: it must fail, errno is set. *kill_after: the caller kills after the call.
bool Hit(const char* function, bool* kill_after) {
  if (!g_armed) return false;
  if (g_sticky_function != nullptr && std::strcmp(function, g_sticky_function) == 0) {
    errno = g_fault.error_number;
    return true;
  }
  if (g_num_calls++ != g_fault.at) return false;
  switch (g_fault.action) {
    case FaultAction::kNone:
      return false;
    case FaultAction::kKill:
      KillSelf();
      return false;
    case FaultAction::kKillHalfWay:
      *kill_after = true;
      return false;
    case FaultAction::kFail:
      if (g_fault.sticky) g_sticky_function = function;
      errno = g_fault.error_number;
      return true;
  }
  return false;
}

template <typename... Args>
long Call(const char* function, long number, Args... args) {
  bool kill_after = false;
  if (Hit(function, &kill_after)) return -1;
  const long result = ::syscall(number, args...);
  if (kill_after) KillSelf();
  return result;
}

}  // namespace

void ArmFault(const Fault& fault) {
  g_fault = fault;
  g_num_calls = 0;
  g_sticky_function = nullptr;
  g_armed = true;
}

int DisarmFault() {
  g_armed = false;
  return g_num_calls;
}

}  // namespace cria::trainer

using cria::trainer::Call;
using cria::trainer::Hit;

extern "C" {

int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(Call("mkdir", SYS_mkdir, path, mode));
}

int open(const char* path, int flags, ...) {
  if ((flags & O_CREAT) == 0) return static_cast<int>(::syscall(SYS_open, path, flags));
  va_list args;
  va_start(args, flags);
  const mode_t mode = va_arg(args, mode_t);
  va_end(args);
  return static_cast<int>(Call("open", SYS_open, path, flags, mode));
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  bool kill_after = false;
  if (Hit("pwrite", &kill_after)) return -1;
  const ssize_t result = ::syscall(SYS_pwrite64, fd, data, kill_after ? size / 2 : size, offset);
  if (kill_after) cria::trainer::KillSelf();
  return result;
}

// A killed process loses nothing that the kernel has; syncing for real is slow and shows nothing.
int fsync(int) {
  bool kill_after = false;
  if (Hit("fsync", &kill_after)) return -1;
  if (kill_after) cria::trainer::KillSelf();
  return 0;
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(Call("rename", SYS_rename, from, to));
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  if (cria::trainer::g_armed && cria::trainer::g_fault.no_exchange) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(Call("renameat2", SYS_renameat2, from_dir, from, to_dir, to, flags));
}

int unlink(const char* path) noexcept { return static_cast<int>(Call("unlink", SYS_unlink, path)); }

int unlinkat(int dir, const char* path, int flags) noexcept {
  return static_cast<int>(Call("unlinkat", SYS_unlinkat, dir, path, flags));
}

int rmdir(const char* path) noexcept { return static_cast<int>(Call("rmdir", SYS_rmdir, path)); }

}  // extern "C"

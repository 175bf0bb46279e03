#include "trainer/launch/rank_process.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "comm/net/fd.h"

namespace cria::trainer {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool Redirect(int from, int to) { return from < 0 || dup2(from, to) >= 0; }

// In the child: becomes the program, or returns.
void BecomeProgram(const RankCommand& rank, pid_t launcher, int null_fd, char* const* arguments,
                   char* const* environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the request.
  if (getppid() != launcher) _exit(1);
  signal(SIGPIPE, SIG_DFL);
  // With `stty tostop` a group in the background would be stopped by its first word.
  signal(SIGTTOU, SIG_IGN);
  if (!Redirect(null_fd, STDIN_FILENO) || !Redirect(rank.out, STDOUT_FILENO) ||
      !Redirect(rank.err, STDERR_FILENO)) {
    return;
  }
  sigprocmask(SIG_SETMASK, &rank.signal_mask, nullptr);
  execvpe(arguments[0], arguments, environment);
}

}  // namespace

StatusOr<SpawnOutcome> SpawnRank(const RankCommand& rank) {
  std::vector<std::string> words = rank.command;
  std::vector<std::string> variables;
  for (const auto& [name, value] : rank.environment) variables.push_back(name + "=" + value);
  const std::vector<char*> arguments = Pointers(words);
  const std::vector<char*> environment = Pointers(variables);
  const comm::Fd null_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::array<int, 2> ends;
  if (!null_fd.valid() || pipe2(ends.data(), O_CLOEXEC) != 0) {
    return ErrnoError(errno, "start a rank: /dev/null and a pipe");
  }
  comm::Fd failure(ends[0]), failure_end(ends[1]);
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoError(errno, "start a rank: fork");
  if (pid == 0) {
    BecomeProgram(rank, launcher, null_fd.get(), arguments.data(), environment.data());
    const int why = errno;
    [[maybe_unused]] const ssize_t written = write(failure_end.get(), &why, sizeof(why));
    _exit(127);
  }
  failure_end.Reset();
  // Closed without a word by the program's start.
  SpawnOutcome outcome = {.pid = pid};
  ssize_t bytes;
  do {
    bytes = read(failure.get(), &outcome.exec_errno, sizeof(outcome.exec_errno));
  } while (bytes < 0 && errno == EINTR);
  if (outcome.exec_errno != 0) {
    waitpid(pid, nullptr, 0);
    outcome.pid = -1;
  }
  return outcome;
}

std::string DescribeEnd(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return StrCat("exited with code ", info.si_status);
  return StrCat("was killed by ", SignalName(info.si_status),
                info.si_code == CLD_DUMPED ? " (core dumped)" : "");
}

int ShellCode(const siginfo_t& info) {
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

std::string SignalName(int signal_number) {
  const char* const name = sigabbrev_np(signal_number);
  return name == nullptr ? StrCat("signal ", signal_number) : StrCat("SIG", name);
}

}  // namespace cria::trainer

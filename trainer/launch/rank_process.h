// Starting a rank as a process of its own group, and what became of it.
//
//   CRIA_ASSIGN_OR_RETURN(const SpawnOutcome outcome, SpawnRank({.command = {"sh", "-c", "exit
//   3"}})); if (outcome.exec_errno != 0) ...  // there is no process
//
// Uses fork: for a process without other threads.

#ifndef CRIA_TRAINER_LAUNCH_RANK_PROCESS_H_
#define CRIA_TRAINER_LAUNCH_RANK_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous/rank_environment.h"

namespace cria::trainer {

struct RankCommand {
  std::vector<std::string> command = {};
  comm::EnvironmentVariables environment = {};
  // For its standard output and error; -1: ours.
  int out = -1;
  int err = -1;
  sigset_t signal_mask = {};  // that the program starts with
};

struct SpawnOutcome {
  pid_t pid = -1;
  int exec_errno = 0;  // not 0: the program could not be run
};

// Returns when the program runs, or cannot. It leads its own process group, reads /dev/null, and
// gets SIGKILL from the kernel when this thread ends. It may write to the terminal from the
// background. Internal: no process, no pipe.
StatusOr<SpawnOutcome> SpawnRank(const RankCommand& rank);

// "exited with code 3", "was killed by SIGSEGV"; of a siginfo_t that waitid has filled.
std::string DescribeEnd(const siginfo_t& info);

// The code of a shell for that end: 128 + the number of a signal.
int ShellCode(const siginfo_t& info);

// "SIGINT".
std::string SignalName(int signal_number);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LAUNCH_RANK_PROCESS_H_

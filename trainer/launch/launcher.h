// Starts the ranks of a job on this machine and stands by them until all have ended, with
// torchrun's environment and habits.
//
//   CRIA_ASSIGN_OR_RETURN(const LaunchResult result,
//                         Launch({.command = {"bazel-bin/trainer/train", "--out", "runs/a"},
//                                 .ranks = 4}));
//   if (result.exit_code != 0) std::fprintf(stderr, "%s\n", result.message.c_str());
//
// Environment of a rank: ours and that of launch_environment.h. Its standard input is /dev/null.
// Output. Rank 0 of the job writes to our own standard output and error. Every line of the others
// goes to our standard error as "[rank 3] line", or with log_dir to DIR/rank_3.out and .err.
// End. The first rank that fails (a code other than 0, a signal) decides: the others get SIGTERM
// (and SIGCONT, for those that stand still), and after grace_s SIGKILL; the message names that rank
// and its last lines. Of ranks that are seen to have ended at one moment, one that a signal killed
// counts as the first. Signals. SIGINT, SIGTERM, SIGHUP and SIGQUIT go to all ranks, which may end
// as they like; the second one (100 ms later or more: `timeout` sends each twice) kills. SIGTSTP
// and SIGCONT stop and continue all. A signal that was ignored when we were started stays ignored.
// Nothing is left: each rank leads a process group of its own, which is killed with it, and the
// kernel kills the ranks when this process dies. What a rank starts outside its group is not ours.
//
// Not found here: a rank that hangs (communicators have deadlines), and failures on other nodes.
// Single-threaded; while Launch runs, no other thread of the process may fork or wait for children.

#ifndef CRIA_TRAINER_LAUNCH_LAUNCHER_H_
#define CRIA_TRAINER_LAUNCH_LAUNCHER_H_

#include <string>

#include "base/status.h"
#include "trainer/launch/launch_environment.h"

namespace cria::trainer {

struct LaunchResult {
  // Of the first rank that failed: its code, 128 + the signal that killed it, 127 for a program
  // that is not there and 126 for one that cannot be run. After a second signal 128 + that.
  int exit_code = 0;
  int culprit = -1;          // that rank, -1 for none
  std::string message = {};  // why, for people; empty when exit_code is 0
};

// InvalidArgument: options that contradict each other. Other errors: no pipe, no process, no log
// folder; then nothing runs any more.
StatusOr<LaunchResult> Launch(const LaunchOptions& options);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LAUNCH_LAUNCHER_H_

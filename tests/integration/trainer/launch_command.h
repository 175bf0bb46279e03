// `cria launch` on shell scripts, as tests need it.
//
//   LaunchedScript job({"-n", "3"}, "trap 'exit 0' TERM; ready; sleep 1000 & wait");
//   ASSERT_TRUE(job.WaitUntilReady(3));
//   job.launcher().Signal(SIGTERM);
//   EXPECT_EQ(job.launcher().Wait().exit_code, 0);
//   EXPECT_TRUE(job.AllGone());
//
// Scripts have $DIR, a folder of the job, and `ready`, which tells the test this rank's pid.
// For tests whose data has //trainer/launch. Single-threaded.

#ifndef CRIA_TESTS_INTEGRATION_TRAINER_LAUNCH_COMMAND_H_
#define CRIA_TESTS_INTEGRATION_TRAINER_LAUNCH_COMMAND_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace cria {

inline constexpr char kLaunchProgram[] = "trainer/launch/launch";

// 'R', 'S', 'T' (stopped), ...; 'Z' for a process that has ended, or is not there.
char ProcessState(pid_t pid);

class LaunchedScript {
 public:
  LaunchedScript(const std::vector<std::string>& flags, const std::string& script);
  // Kills what a failed test has left.
  ~LaunchedScript();

  Process& launcher() { return *launcher_; }
  const std::string& dir() const { return dir_; }
  // Ranks 0 .. ranks - 1 have called `ready`. False when the launcher ended before.
  bool WaitUntilReady(int ranks);
  // Of a rank that is ready.
  pid_t PidOf(int rank) const;
  // No rank that was ready lives.
  bool AllGone() const;

 private:
  std::string dir_;
  std::unique_ptr<Process> launcher_;
};

// Start, and wait for the end.
Ended RunScript(const std::vector<std::string>& flags, const std::string& script);

}  // namespace cria

#endif  // CRIA_TESTS_INTEGRATION_TRAINER_LAUNCH_COMMAND_H_

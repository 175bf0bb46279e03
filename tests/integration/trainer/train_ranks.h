// A tiny training job of several ranks under `cria launch`, which a test can disturb.
//
//   TrainRanks job(out, {.ranks = 4, .settings = {"parallel.tp=2"}});
//   ASSERT_TRUE(job.WaitForStep(7));
//   kill(job.PidOf(2), SIGKILL);
//   const Ended ended = job.Wait();
//
// A folder that holds a run is gone on with. For tests whose data has //trainer:train and
// //trainer/launch. Single-threaded.

#ifndef CRIA_TESTS_INTEGRATION_TRAINER_TRAIN_RANKS_H_
#define CRIA_TESTS_INTEGRATION_TRAINER_TRAIN_RANKS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/process.h"

namespace cria {

struct TrainRanksOptions {
  int ranks = 2;
  std::vector<std::string> settings = {};
  std::string program = {};  // in place of cria train
  std::vector<std::pair<std::string, std::string>> env = {};
};

class TrainRanks {
 public:
  TrainRanks(const std::string& out_dir, const TrainRanksOptions& options);

  // The run's log has that many steps, or more. False when the job ended before.
  bool WaitForStep(int64_t step);
  // Waits until that rank has been started; 0 when the job ended before.
  pid_t PidOf(int rank);
  Ended Wait() { return launcher_->Wait(); }

 private:
  const std::string out_dir_;
  std::unique_ptr<Process> launcher_;
};

// The lines of the run's log.
int64_t NumSteps(const std::string& out_dir);

}  // namespace cria

#endif  // CRIA_TESTS_INTEGRATION_TRAINER_TRAIN_RANKS_H_

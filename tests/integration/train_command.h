// `cria train` as a user runs it, on the tiny job of tests/support/tiny_run.h.
//
//   Ended ended = RunProcess(TrainArgs(out, {"--steps", "5"}));
//
// For tests whose data has //trainer:train and whose text is prepared by TinyData().

#ifndef CRIA_TESTS_INTEGRATION_TRAIN_COMMAND_H_
#define CRIA_TESTS_INTEGRATION_TRAIN_COMMAND_H_

#include <string>
#include <vector>

namespace cria {

inline constexpr char kTrainProgram[] = "trainer/train";

// The program with the tiny job's settings, `--out out_dir` and `more`. No settings are given with
// --resume auto once the run's folder has its config.yaml, which says all.
std::vector<std::string> TrainArgs(const std::string& out_dir,
                                   const std::vector<std::string>& more = {},
                                   const std::vector<std::string>& settings = {});

// metrics.jsonl by line without what depends on the clock.
std::vector<std::string> MetricsWithoutSpeed(const std::string& out_dir);

// Lines of standard error that are not the log's ("warning", "info") or progress.
std::vector<std::string> ErrorLines(const std::string& err);

}  // namespace cria

#endif  // CRIA_TESTS_INTEGRATION_TRAIN_COMMAND_H_

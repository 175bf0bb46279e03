// The start of a job of real processes, with any of the libraries that the benchmark knows
// (bench/join.h): this program again, as each rank.
//
//   CRIA_ASSIGN_OR_RETURN(const InitSample sample,
//                         RunProcessJob({.impl = "gloo", .num_ranks = 16, .limit_s = 10}));
//
// All ranks meet first on a shared page, without the library; then each joins. Measured is from the
// first that starts to join to the last that has. Single-threaded.

#ifndef CRIA_COMM_BENCH_INIT_PROCESS_JOB_H_
#define CRIA_COMM_BENCH_INIT_PROCESS_JOB_H_

#include <string>

#include "base/status.h"
#include "comm/bench/init/sample.h"

namespace cria::comm {

struct ProcessJobOptions {
  std::string impl;  // "cria", "mpi", "gloo"
  int num_ranks = 2;
  double limit_s = 10;  // for the whole of it
};

// DeadlineExceeded when the limit passed; else what failed, with the ranks' last words.
StatusOr<InitSample> RunProcessJob(const ProcessJobOptions& options);

// What a rank process does; `folder` is the job's. Prints its times for RunProcessJob.
Status RunInitRank(const std::string& impl, const std::string& folder, double limit_s);

// The flags by which the command tells a rank process to call RunInitRank.
inline constexpr const char* kInitRankFolderFlag = "--rank-folder";
inline constexpr const char* kInitRankImplFlag = "--rank-impl";

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_PROCESS_JOB_H_

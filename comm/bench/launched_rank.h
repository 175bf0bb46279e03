// A benchmark whose ranks somebody else has started: `cria launch`, mpirun, srun.
//
//   CRIA_ASSIGN_OR_RETURN(const RankEnvironment environment, ReadRankEnvironment(...));
//   if (environment.source != "none") return RunLaunchedBench(environment, options);
//
// Single-threaded but for the libraries.

#ifndef CRIA_COMM_BENCH_LAUNCHED_RANK_H_
#define CRIA_COMM_BENCH_LAUNCHED_RANK_H_

#include "base/status.h"
#include "comm/bench/bench_options.h"
#include "comm/rendezvous/rank_environment.h"

namespace cria::comm {

// This rank's part. The ranks meet once through cria's own rendezvous, to share a folder.
// InvalidArgument: ranks on several hosts, or MPI among the libraries without mpirun.
Status RunLaunchedBench(const RankEnvironment& environment, const BenchOptions& options);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_LAUNCHED_RANK_H_

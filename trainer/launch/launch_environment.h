// What a launched job is, and what each of its ranks finds in its environment: torchrun's variables
// and its share of the cores.
//
//   CRIA_ASSIGN_OR_RETURN(const LaunchOptions job, ResolveLaunch({.command = ..., .ranks = 4}));
//   EnvironmentVariables all = EnvironmentOfRank(job, local_rank, cores,
//   comm::ProcessEnvironment());
//
// Thread-safe.

#ifndef CRIA_TRAINER_LAUNCH_LAUNCH_ENVIRONMENT_H_
#define CRIA_TRAINER_LAUNCH_LAUNCH_ENVIRONMENT_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous/rank_environment.h"

namespace cria::trainer {

// Ranks on one machine; a limit against a typing error.
inline constexpr int kLocalRanksMax = 1024;

struct LaunchOptions {
  // The program, looked for in PATH when it has no slash, and its arguments.
  std::vector<std::string> command = {};
  int ranks = 1;      // on this machine, and on each of the others
  int num_nodes = 1;  // machines, each with a launcher
  int node_rank = 0;  // which of them this is
  // Where rank 0 meets the others. Empty: this machine, when it is the only one.
  std::string master_address = {};
  int master_port = 0;  // 0: a free one on one machine, torchrun's 29500 on several
  // Tells this run from others at that port; the same on all machines. Empty: one of our own on one
  // machine, torchrun's "none" on several.
  std::string run_id = {};
  double grace_s = 10;       // from SIGTERM to SIGKILL
  std::string log_dir = {};  // for the output of all ranks but 0; empty: our standard error
};

// The options with nothing left to choose. InvalidArgument names the option and its value;
// ResourceExhausted when there is no free port.
StatusOr<LaunchOptions> ResolveLaunch(const LaunchOptions& options);

// `ours`, with the variables of the rank that is `local_rank` here. `cores`: those that this
// process may use. OMP_NUM_THREADS and CRIA_THREADS become cores / ranks, at least 1, unless they
// are set.
comm::EnvironmentVariables EnvironmentOfRank(const LaunchOptions& job, int local_rank, int cores,
                                             const comm::EnvironmentVariables& ours);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LAUNCH_LAUNCH_ENVIRONMENT_H_

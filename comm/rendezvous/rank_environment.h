// Which rank this process is, from the environment that launchers set.
//
//   CRIA_ASSIGN_OR_RETURN(RankEnvironment environment, ReadRankEnvironment(ProcessEnvironment()));
//
// A source counts when it names a rank. In this order:
//
//   source    rank                  world size                       on this host
//   torchrun  RANK                  WORLD_SIZE                       LOCAL_RANK, LOCAL_WORLD_SIZE
//   slurm     SLURM_PROCID          SLURM_STEP_NUM_TASKS or          SLURM_LOCALID, SLURM_NODEID in
//                                   SLURM_NTASKS                     SLURM_STEP_TASKS_PER_NODE, ...
//   openmpi   OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE             OMPI_COMM_WORLD_LOCAL_RANK,
//   ...
//
// MASTER_ADDR and MASTER_PORT hold for all three. Without them: Slurm gives the first host of its
// node list and a port made of the job's and the step's number; Open MPI on one host 127.0.0.1 and
// a port made of its job's name; everywhere else they must be set.
// Two sources that disagree are an error that names both, but for torchrun started by Slurm with
// one task a node (GROUP_RANK is SLURM_PROCID). CRIA_COMM_LAUNCHER=torchrun|slurm|openmpi takes
// that source and looks at no other. Without any source: one rank, alone. Thread-safe.

#ifndef CRIA_COMM_RENDEZVOUS_RANK_ENVIRONMENT_H_
#define CRIA_COMM_RENDEZVOUS_RANK_ENVIRONMENT_H_

#include <map>
#include <string>

#include "base/status.h"

namespace cria::comm {

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // 0 also when the launcher does not say
  int local_size = 1;  // ranks on this host; 0 when the launcher does not say
  std::string master_address = "127.0.0.1";
  int master_port = 0;          // 0 only when world_size is 1
  std::string source = "none";  // "torchrun", "slurm", "openmpi", "none"
  // The launcher's name for this run, the same on all its ranks; empty when it gives none. Ranks
  // of two runs that meet at one port are told apart by it.
  std::string job = {};
};

using EnvironmentVariables = std::map<std::string, std::string>;

// The most ranks that a world may have.
inline constexpr int kWorldSizeMax = 1 << 20;

// This process's.
EnvironmentVariables ProcessEnvironment();

// InvalidArgument names the variables, their values and what they contradict.
StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentVariables& variables);

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_RANK_ENVIRONMENT_H_

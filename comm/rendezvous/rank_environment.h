// Which rank this process is, from the environment that launchers set.
//
// In this order: torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT; Slurm's SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NODELIST, ...; Open
// MPI's OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, ... A source counts
// when it names a rank; where two sources are there and disagree, it is an error that names both.
// Without any: one rank, alone. Thread-safe.

#ifndef CRIA_COMM_RENDEZVOUS_RANK_ENVIRONMENT_H_
#define CRIA_COMM_RENDEZVOUS_RANK_ENVIRONMENT_H_

#include <map>
#include <string>

#include "base/status.h"

namespace cria::comm {

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;  // ranks on this host; 0 when the launcher does not say
  std::string master_address = "127.0.0.1";
  int master_port = 0;          // 0 only when world_size is 1
  std::string source = "none";  // "torchrun", "slurm", "openmpi", "none"
};

using EnvironmentVariables = std::map<std::string, std::string>;

// This process's.
EnvironmentVariables ProcessEnvironment();

// InvalidArgument names the variables, their values and what they contradict.
StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentVariables& variables);

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_RANK_ENVIRONMENT_H_

// What a rank's communicators share: its domains, the rank map, the options of the job.
// Made by JoinWorld, held by every communicator. Thread-safe: constant after construction, and the
// domains lock for themselves.

#ifndef CRIA_COMM_ENGINE_JOB_H_
#define CRIA_COMM_ENGINE_JOB_H_

#include <memory>

#include "comm/engine/fork_guard.h"
#include "comm/engine/rank_map.h"
#include "comm/engine/transport.h"
#include "comm/plan/group_topology.h"
#include "comm/plan/planner.h"
#include "comm/shm/shm_domain.h"
#include "comm/tcp/tcp_domain.h"
#include "debug/observer.h"

namespace cria::comm {

struct Job {
  int world_rank = 0;
  std::shared_ptr<const RankMap> rank_map = nullptr;
  // host_of_rank by world rank; the tiers by those hosts.
  GroupTopology topology = {};
  bool tcp_only = false;
  AlgorithmOverrides algorithms = {};
  debug::Observer* observer = nullptr;
  StepHook step_hook = nullptr;
  std::unique_ptr<ShmDomain> shm = nullptr;
  std::unique_ptr<TcpDomain> tcp = nullptr;
  ForkGuard fork_guard = {};
};

// The topology of a group: `world`'s, of these world ranks alone, hosts numbered anew.
GroupTopology TopologyOfGroup(const GroupTopology& world, const std::vector<int>& world_ranks);

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_JOB_H_

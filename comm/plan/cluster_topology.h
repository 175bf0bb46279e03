// The topology of a group that runs on a described cluster (base/topology.h): for plans of machines
// that are not here.
//
//   CRIA_ASSIGN_OR_RETURN(const Cluster cluster, ReadCluster("llama3_24k"));
//   const GroupTopology topology = GroupTopologyOf(cluster, ContiguousPlacement(cluster, 1024));
//
// Thread-safe: pure functions.

#ifndef CRIA_COMM_PLAN_CLUSTER_TOPOLOGY_H_
#define CRIA_COMM_PLAN_CLUSTER_TOPOLOGY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/topology.h"
#include "comm/plan/group_topology.h"

namespace cria::comm {

// The host of each rank when `num_ranks` ranks fill the hosts one after another, ranks_per_host
// each (0: the cluster's).
std::vector<int64_t> ContiguousPlacement(const Cluster& cluster, int num_ranks,
                                         int64_t ranks_per_host = 0);

// `host_of_rank`: hosts of the cluster, by rank of the group. Tiers that the group lies within
// one unit of are left out; those that it spans add their latency to that of TCP. A unit's
// bandwidth is that of the group's own hosts in it: the rest of the unit is taken to be as busy.
GroupTopology GroupTopologyOf(const Cluster& cluster, std::span<const int64_t> host_of_rank);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_CLUSTER_TOPOLOGY_H_

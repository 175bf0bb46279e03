// What a plan costs by the model of count_cost.h. Thread-safe: values.

#ifndef CRIA_COMM_PLAN_PLAN_COST_H_
#define CRIA_COMM_PLAN_PLAN_COST_H_

#include <vector>

#include "comm/plan/group_topology.h"
#include "comm/plan/plan.h"

namespace cria::comm {

struct PlanCost {
  int rounds = 0;
  double bytes_sent_max = 0;  // by one rank: the sum over rounds of the busiest one's
  double latency_us = 0;
  double bandwidth_us = 0;
  double reduce_us = 0;

  double total_us() const { return latency_us + bandwidth_us + reduce_us; }
};

// What the busiest do in one round.
struct RoundLoad {
  LinkKind link = LinkKind::kShm;
  double hops = 0;
  double messages = 0;
  double bytes_sent = 0;     // by a rank
  double rank_bytes = 0;     // in or out of a rank
  double touched_bytes = 0;  // read and written by an owner
  double reduced_bytes = 0;  // added by an owner
  double host_bytes = 0;     // in or out of a host
  std::vector<double> unit_us =
      {};  // by tier: of what leaves or enters a unit, without oversubscription
};

// How many times longer the CPU's work takes where ranks share cores.
inline double CpuFactor(const GroupTopology& topology, int ranks_per_host_max) {
  if (topology.cores_per_host <= 0) return 1;
  const double factor = static_cast<double>(ranks_per_host_max) / topology.cores_per_host;
  return factor > 1 ? factor : 1;
}

// Adds `repeat` rounds like this one.
void AddRounds(const RoundLoad& load, double repeat, const GroupTopology& topology,
               double cpu_factor, PlanCost* cost);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_PLAN_COST_H_

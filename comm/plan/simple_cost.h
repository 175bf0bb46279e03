// Closed forms of what the simple algorithms cost (comm/algorithms/simple.h), by the model of
// count_cost.h: classes of equal rounds, at most log2(n) of them.
// Thread-safe: pure functions.

#ifndef CRIA_COMM_PLAN_SIMPLE_COST_H_
#define CRIA_COMM_PLAN_SIMPLE_COST_H_

#include <cstdint>
#include <vector>

#include "comm/api/types.h"
#include "comm/plan/group_topology.h"
#include "comm/plan/plan_cost.h"

namespace cria::comm {

// A group as the closed forms see it: equal hosts, equal units. O(ranks) to make.
struct GroupShape {
  int num_ranks = 0;
  int num_hosts = 0;
  int ranks_per_host_max = 0;
  int lanes = 0;                         // ranks of the smallest host
  std::vector<int> hosts_per_unit = {};  // by tier, of the largest unit
  // By tier, where its units can be the pieces of a plan by tier: several, of as many hosts each.
  std::vector<bool> even_units = {};
  double cpu_factor = 1;
};
GroupShape ShapeOf(const GroupTopology& topology);

// An operation among members that lie in tier order, `members_per_host` on each host, on one of
// `lanes` such groups of members that do the same at once.
struct SimpleOperation {
  OpKind kind = OpKind::kAllReduce;
  int num_members = 1;
  int64_t count = 0;  // all_reduce, reduce, broadcast: of the whole; else the largest part
  int64_t align = 1;
  double element_bytes = 4;
  double partial_bytes = 4;  // of an element of scratch
  bool partial_input = false;
  bool partial_output = false;  // of a reduce
  LinkKind link = LinkKind::kTcp;
  int members_per_host = 1;
  int lanes = 1;
};

// Adds the rounds of `algorithm`. HasSimple(algorithm, operation.kind).
void AddSimpleCost(Algorithm algorithm, const SimpleOperation& operation, int num_chunks,
                   bool recursive_doubling, const GroupShape& group, const GroupTopology& topology,
                   PlanCost* cost);

// all_to_all, gather and scatter: in one round, or one partner a round. operation.count is the
// part.
void AddTransferCost(const SimpleOperation& operation, bool pairwise, const GroupShape& group,
                     const GroupTopology& topology, PlanCost* cost);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_SIMPLE_COST_H_

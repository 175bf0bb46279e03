// How an operation is to be run, decided: an algorithm with its parameters. And the operation in
// the algorithms' terms.
// Thread-safe: values and pure functions.

#ifndef CRIA_COMM_PLAN_PLAN_SHAPE_H_
#define CRIA_COMM_PLAN_PLAN_SHAPE_H_

#include <string>
#include <vector>

#include "comm/algorithms/collective.h"
#include "comm/plan/plan_request.h"

namespace cria::comm {

struct PlanShape {
  Algorithm algorithm = Algorithm::kFlat;
  int num_chunks = 1;               // of a pipeline
  bool recursive_doubling = false;  // halving_doubling's all_reduce, 4 ranks or hosts at least
  // Hierarchical alone: between hosts, or with a tier between the hosts of one of its units, and
  // `across` the units.
  Algorithm between = Algorithm::kRing;
  int tier = -1;  // of GroupTopology::tier_of_host; -1: none
  Algorithm across = Algorithm::kRing;
};

// "ring", "hierarchical (halving_doubling between hosts)".
std::string Describe(const PlanShape& shape);

// all_gather_v is an all_gather with other parts, reduce_scatter_v a reduce_scatter.
OpKind PlainKind(OpKind kind);
// Kinds whose data moves between pairs of ranks: all_to_all, gather, scatter.
bool MovesPairs(OpKind kind);
// Cuts of a buffer are multiples of so many elements: a cache line, which two owners never share.
int64_t CutElements(DataType dtype);

// Why this algorithm, or this shape, cannot run this operation here; empty when it can.
std::string WhyNot(const PlanRequest& request, Algorithm algorithm);
std::string WhyNot(const PlanRequest& request, const PlanShape& shape);

// How many ranks and hosts there are, and how they lie. O(ranks).
int NumHosts(const GroupTopology& topology);
// The hosts with those of a unit of each tier side by side: a ring in this order crosses each
// border once.
std::vector<int> HostsInTierOrder(const GroupTopology& topology);
// As many hosts as each unit of a tier has; 0 when they differ, or there is one unit alone.
int HostsPerUnit(const GroupTopology& topology, int tier);

// The plan of one rank. The shape's algorithm can run the request.
Plan BuildShape(const PlanRequest& request, const PlanShape& shape);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_PLAN_SHAPE_H_

// The cost of built plans, counted task by task: what the closed forms of cost.h must agree with.
//
// The model. Rounds follow one another; a round takes latency + bandwidth + reduction:
//   latency    hops * link latency + the most messages that a rank sends or receives * message_us.
//              Hops: over shared memory 2 (data is ready; it has been taken), over TCP 1, or 2
//              where an owner both receives and sends
//   bandwidth  shared memory: the most bytes that an owner reads and writes / the rank's GB/s.
//              TCP: the slowest of: a rank's bytes in or out; those that leave or enter a host, at
//              the host's GB/s; those that leave or enter a unit of a tier, at its hosts' GB/s
//              together / oversubscription
//   reduction  the most bytes that an owner adds to others / reduce GB/s
// With more ranks than cores on a host, what the CPU does takes ranks/cores times as long.
// Thread-safe: a pure function. Cost: all tasks of all plans.

#ifndef CRIA_COMM_PLAN_COUNT_COST_H_
#define CRIA_COMM_PLAN_COUNT_COST_H_

#include <span>

#include "comm/plan/group_topology.h"
#include "comm/plan/plan.h"
#include "comm/plan/plan_cost.h"

namespace cria::comm {

// The plans of ranks 0 .. n-1 of one operation.
PlanCost CountCost(std::span<const Plan> plans, const GroupTopology& topology);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_COUNT_COST_H_

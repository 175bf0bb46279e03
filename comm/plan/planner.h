// From an operation to a plan: the candidates, their costs, the choice.
//
//   PlanRequest request{.kind = OpKind::kAllReduce, .dtype = DataType::kFloat32, .count = n,
//                       .topology = &topology, .rank = r};
//   CRIA_ASSIGN_OR_RETURN(Plan plan, BuildPlan(request, /*override=*/overrides));
//
// The choice is a pure function of (topology, group, kind, bytes, dtype, overrides): no clock, no
// measurement, no rank, so that all ranks choose alike, and the same in each run.
//
// A barrier is planned as an all_reduce of one uint8 by max, so that every result depends on every
// rank: the plan's kind is all_reduce, and the caller gives one byte of input and one of output.
// all_to_all_v, whose counts no rank knows but its own, is one transfer a pair (engine/); it,
// send, recv and group have no plan.
//
// Thread-safe. Cost: the pricing of about a hundred shapes (tens of microseconds) and the plan.
// Errors: InvalidArgument for an override that this operation cannot follow, or a request that is
// none (rank, root, counts out of range).

#ifndef CRIA_COMM_PLAN_PLANNER_H_
#define CRIA_COMM_PLAN_PLANNER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/types.h"
#include "comm/plan/group_topology.h"
#include "comm/plan/plan.h"
#include "comm/plan/plan_cost.h"
#include "comm/plan/plan_request.h"
#include "comm/plan/plan_shape.h"

namespace cria::comm {

// By kind: "all_reduce:ring;broadcast:double_tree". CRIA_COMM_ALGO has this form; "" is none.
using AlgorithmOverrides = std::map<OpKind, Algorithm>;
StatusOr<AlgorithmOverrides> ParseAlgorithmOverrides(const std::string& text);

struct Candidate {
  PlanShape shape = {};  // the cheapest of its algorithm
  PlanCost cost = {};
  std::string why_not = {};  // not empty: cannot run this operation here
};

// All algorithms with their costs, cheapest first, those that cannot run last.
StatusOr<std::vector<Candidate>> PriceCandidates(const PlanRequest& request);

// The shape of the cheapest candidate, or of the overriding algorithm.
StatusOr<PlanShape> ChooseShape(const PlanRequest& request,
                                const AlgorithmOverrides& overrides = {});

// The plan of that shape.
StatusOr<Plan> BuildPlan(const PlanRequest& request, const AlgorithmOverrides& overrides = {});

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_PLANNER_H_

// From an operation to a plan: the candidates, their costs, the choice.
//
//   PlanRequest request{.kind = OpKind::kAllReduce, .dtype = DataType::kFloat32, .count = n,
//                       .topology = &topology, .rank = r};
//   CRIA_ASSIGN_OR_RETURN(Plan plan, BuildPlan(request, /*override=*/overrides));
//
// The choice is a pure function of (topology, group, kind, bytes, dtype, overrides): no clock, no
// measurement, no rank, so that all ranks choose alike, and the same in each run.
// Thread-safe. Errors: InvalidArgument for an override that this operation cannot follow.

#ifndef CRIA_COMM_PLAN_PLANNER_H_
#define CRIA_COMM_PLAN_PLANNER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/types.h"
#include "comm/plan/group_topology.h"
#include "comm/plan/plan.h"

namespace cria::comm {

struct PlanRequest {
  OpKind kind = OpKind::kAllReduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  int64_t count = 0;  // as in operation.h; 0 for the V kinds
  int root = 0;
  // all_gather_v and reduce_scatter_v: elements and place of each rank's part, the same on all
  // ranks.
  std::span<const int64_t> counts = {};
  std::span<const int64_t> displacements = {};  // of the whole buffer; empty: one after another
  const GroupTopology* topology = nullptr;
  int rank = 0;  // whose view
  // True: every byte goes over TCP, also inside a host (tests, CRIA_COMM_TRANSPORT=tcp).
  bool tcp_only = false;
};

// By kind: "all_reduce:ring;broadcast:double_tree". CRIA_COMM_ALGO has this form; "" is none.
using AlgorithmOverrides = std::map<OpKind, Algorithm>;
StatusOr<AlgorithmOverrides> ParseAlgorithmOverrides(const std::string& text);

struct Candidate {
  Algorithm algorithm = Algorithm::kFlat;
  int rounds = 0;
  int64_t bytes_sent_max = 0;  // by the busiest rank, over all links
  double latency_us = 0;
  double bandwidth_us = 0;  // time of the bytes on the slowest link, oversubscription included
  double reduce_us = 0;
  double total_us = 0;
  std::string why_not;  // not empty: cannot run this operation here
};

// All algorithms with their costs, cheapest first, those that cannot run last.
std::vector<Candidate> PriceCandidates(const PlanRequest& request);

// The plan of the cheapest candidate, or of the overriding one.
StatusOr<Plan> BuildPlan(const PlanRequest& request, const AlgorithmOverrides& overrides = {});

// The candidates as a table, the chosen plan's rounds below it: what --explain prints.
std::string ExplainPlan(const PlanRequest& request, const AlgorithmOverrides& overrides = {});

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_PLANNER_H_

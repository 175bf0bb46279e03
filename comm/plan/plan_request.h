// What a plan is asked for: an operation, the group's topology, whose view. See planner.h.
// Thread-safe: a value; the spans and the topology are the caller's.

#ifndef CRIA_COMM_PLAN_PLAN_REQUEST_H_
#define CRIA_COMM_PLAN_PLAN_REQUEST_H_

#include <cstdint>
#include <span>

#include "comm/api/types.h"
#include "comm/plan/group_topology.h"

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

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_PLAN_REQUEST_H_

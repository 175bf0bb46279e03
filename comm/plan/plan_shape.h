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
  int num_chunks = 1;  // of a pipeline
};

// Why this algorithm cannot run this operation here; empty when it can.
std::string WhyNot(const PlanRequest& request, Algorithm algorithm);

// The plan of one rank. The shape's algorithm can run the request.
Plan BuildShape(const PlanRequest& request, const PlanShape& shape);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_PLAN_SHAPE_H_

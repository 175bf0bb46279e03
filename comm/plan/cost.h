// What a shape costs, in closed form: no plan is built. See count_cost.h for the model and
// simple_cost.h for the parts.
// Thread-safe: pure functions. Cost: O(log ranks).

#ifndef CRIA_COMM_PLAN_COST_H_
#define CRIA_COMM_PLAN_COST_H_

#include <optional>

#include "comm/plan/plan_cost.h"
#include "comm/plan/plan_request.h"
#include "comm/plan/plan_shape.h"
#include "comm/plan/simple_cost.h"

namespace cria::comm {

// WhyNot(request, shape) is empty; `group` is ShapeOf(*request.topology).
PlanCost PriceShape(const PlanRequest& request, const GroupShape& group, const PlanShape& shape);

// The cheapest shape of an algorithm; nothing when it cannot run the request.
struct PricedShape {
  PlanShape shape = {};
  PlanCost cost = {};
};
std::optional<PricedShape> CheapestShape(const PlanRequest& request, const GroupShape& group,
                                         Algorithm algorithm);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_COST_H_

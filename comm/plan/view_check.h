// Do the views of a plan fit together? Every rank's tasks against those of their owners.
//
// Checked: each plan names its own place in the list; the numbers of rounds, their links and the
// digests agree; a task that a rank sees is its owner's, with this rank's regions and the same
// count, in the owner's order, and none is missing; tasks of a round have one order that all views
// keep; over shared memory all of a task's ranks share a host.
// Errors: FailedPrecondition. Thread-safe.

#ifndef CRIA_COMM_PLAN_VIEW_CHECK_H_
#define CRIA_COMM_PLAN_VIEW_CHECK_H_

#include <span>

#include "base/status.h"
#include "comm/plan/plan.h"

namespace cria::comm {

Status CheckViews(std::span<const Plan> plans, std::span<const int> host_of_rank);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_VIEW_CHECK_H_

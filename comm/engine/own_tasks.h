// Rounds that concern one rank alone: the part inside a host of which only one rank is in the
// group.
//
//   RunOwnTasks(context, stretch.rounds);
//
// Every task of the rounds has this rank as its owner, and its buffers only. Thread-safe.

#ifndef CRIA_COMM_ENGINE_OWN_TASKS_H_
#define CRIA_COMM_ENGINE_OWN_TASKS_H_

#include <span>

#include "comm/engine/transport.h"
#include "comm/plan/plan.h"

namespace cria::comm {

void RunOwnTasks(const OperationContext& context, std::span<const Round> rounds);

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_OWN_TASKS_H_

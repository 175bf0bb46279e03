// Runs the plans of all ranks of a group in one process, symbolically, and checks every rule of
// plan.h: the proof that an algorithm is right, at any size, without a transport.
//
//   std::vector<Plan> plans = ...;                       // of ranks 0 .. n-1
//   CRIA_RETURN_IF_ERROR(RunPlans(plans, JobOf(request, /*in_place=*/true)));
//
// Each element is a symbol: which input element it is, whose values it holds, and in which order
// they were combined. Checked: views agree with their owners' tasks, in one order; no element that
// a task writes is touched by another task of the round; reads stay inside buffers and see what was
// written; partials and finished values are not mixed; inputs are still there when they are read
// (in place); each output element is written once, with each rank's value exactly once; all ranks'
// results were combined in the same order (the same bits).
// Errors: FailedPrecondition names the rule, round, task and element. Cost: memory of all buffers
// of all ranks times about 50 bytes an element. Thread-safe.

#ifndef CRIA_COMM_PLAN_INTERPRETER_H_
#define CRIA_COMM_PLAN_INTERPRETER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/plan/plan.h"
#include "comm/plan/plan_request.h"

namespace cria::comm {

struct InterpreterJob {
  struct Buffers {
    int64_t input_elements = 0;
    int64_t output_elements = 0;
    // In place: where the output starts, in elements after the input's start (or before: < 0).
    std::optional<int64_t> output_at = {};
  };
  // What an output element is to hold: the input element of this number of one rank, or of all
  // ranks combined.
  struct Expected {
    bool written = true;
    int64_t element = 0;
    int source = -1;  // -1: all ranks
  };
  bool reduces = false;
  std::vector<Buffers> buffers = {};  // by rank
  std::vector<int> host_of_rank = {};
  std::function<Expected(int rank, int64_t output_element)> expected = {};
};

// The job of a request as planner.h takes it. in_place: on every rank that it is possible for
// (plan.h). A broadcast's root always has one buffer.
InterpreterJob JobOf(const PlanRequest& request, bool in_place);

Status RunPlans(std::span<const Plan> plans, const InterpreterJob& job);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_INTERPRETER_H_

// What a benchmark's step must satisfy before it is timed.
//
// Single-threaded.

#ifndef CRIA_TRAINER_BENCH_VERIFY_STEP_H_
#define CRIA_TRAINER_BENCH_VERIFY_STEP_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "model/precision.h"
#include "trainer/bench/bench_step.h"

namespace cria::trainer {

// The step's loss and gradient norm, after a check that every gradient has the same bits with each
// number of threads. Internal when not. Leaves NumThreads() as it was.
StatusOr<StepResult> VerifyThreads(BenchStep* step, model::Precision precision,
                                   const std::vector<int>& threads);

// Internal when loss or gradient norm differ from the reference's by more than the precision
// allows: 1e-4 for fp32 (sums in another order); a few parts in a hundred for less.
Status VerifyClose(const std::string& name, const StepResult& got, const StepResult& want,
                   model::Precision precision);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_VERIFY_STEP_H_

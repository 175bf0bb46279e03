// Who wants to see what the train loop does on this rank, step by step: a check that compares
// layouts. Called by the train loop on its thread; both calls may read, none may change anything.

#ifndef CRIA_TRAINER_LOOP_STEP_WATCHER_H_
#define CRIA_TRAINER_LOOP_STEP_WATCHER_H_

#include <cstdint>

#include "model/parallel/parameter_buffers.h"
#include "trainer/loop/rank_batches.h"

namespace cria::trainer {

class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  // The rank's part of step `step`'s batch, before it is computed.
  virtual void OnBatches(int64_t step, const RankBatches& batches) = 0;
  // The weights after the step, updated or (a step that was not finite) as they were.
  virtual void OnUpdated(int64_t step, const model::ParameterBuffers& parameters) = 0;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_STEP_WATCHER_H_

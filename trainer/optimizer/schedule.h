// Learning rate and batch size as closed forms of the step: nothing to save, nothing to resume
// wrongly.
//
//   LearningRate(schedule, 1)        the first update's rate, over 0
//
//   cosine  lr ____        wsd  lr ________________
//             /    \__            /                \        min_lr = lr * min_lr_ratio
//            /        \_         /                  \       steps are counted from 1
//           / warm-up   \       / warm-up    decay   \      (warm-up-stable-decay)
//
// Thread-safe: pure functions. Sources: SGDR (Loshchilov & Hutter, 2017); MiniCPM (Hu et al.,
// 2024); batch ramp as in Llama 3 (arXiv 2407.21783, 3.4.1).

#ifndef CRIA_TRAINER_OPTIMIZER_SCHEDULE_H_
#define CRIA_TRAINER_OPTIMIZER_SCHEDULE_H_

#include <cstdint>
#include <vector>

namespace cria::trainer {

struct LearningRateSchedule {
  enum class Kind { kCosine, kWsd };
  Kind kind = Kind::kCosine;
  double lr = 3e-4;
  double min_lr_ratio = 0.1;
  int64_t warmup = 100;         // steps until lr is reached
  double decay_fraction = 0.2;  // wsd: share of all steps that the linear decay takes
  int64_t steps = 1000;
};

// The rate of update `step`, 1 <= step <= schedule.steps. Over 0 from the first step on (unless lr
// is 0); lr at step = warmup; min_lr at the last. A run shorter than its warm-up ends inside it.
double LearningRate(const LearningRateSchedule& schedule, int64_t step);

// Sequences of a step's global batch: `batch`, or less in the first stages of a ramp: stage i lasts
// until the end of step ramp_until[i] and has ramp_batch[i] sequences.
struct BatchSchedule {
  int64_t batch = 1;
  std::vector<int64_t> ramp_batch;
  std::vector<int64_t> ramp_until;  // ascending
};

// The batch of update `step` >= 1.
int64_t BatchSize(const BatchSchedule& schedule, int64_t step);
// Sequences taken by updates 1 .. step: where the stream of data stands.
int64_t SamplesAfter(const BatchSchedule& schedule, int64_t step);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_OPTIMIZER_SCHEDULE_H_

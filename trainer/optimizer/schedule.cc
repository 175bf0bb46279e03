#include "trainer/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cria::trainer {

double LearningRate(const LearningRateSchedule& schedule, int64_t step) {
  const double min_lr = schedule.lr * schedule.min_lr_ratio;
  const auto s = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup);
  const auto steps = static_cast<double>(schedule.steps);
  if (s < warmup) return schedule.lr * s / warmup;
  if (schedule.kind == LearningRateSchedule::Kind::kCosine) {
    const double progress = std::clamp((s - warmup) / std::max(1.0, steps - warmup), 0.0, 1.0);
    return min_lr + (schedule.lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  const double decay = std::max(1.0, std::round(schedule.decay_fraction * steps));
  const double progress = std::clamp((s - (steps - decay)) / decay, 0.0, 1.0);
  return schedule.lr + (min_lr - schedule.lr) * progress;
}

int64_t BatchSize(const BatchSchedule& schedule, int64_t step) {
  for (size_t i = 0; i < schedule.ramp_until.size(); ++i) {
    if (step <= schedule.ramp_until[i]) return schedule.ramp_batch[i];
  }
  return schedule.batch;
}

int64_t SamplesAfter(const BatchSchedule& schedule, int64_t step) {
  int64_t samples = 0;
  int64_t begin = 0;
  for (size_t i = 0; i < schedule.ramp_until.size(); ++i) {
    const int64_t end = std::min(step, schedule.ramp_until[i]);
    samples += std::max<int64_t>(0, end - begin) * schedule.ramp_batch[i];
    begin = std::max(begin, schedule.ramp_until[i]);
  }
  return samples + std::max<int64_t>(0, step - begin) * schedule.batch;
}

}  // namespace cria::trainer

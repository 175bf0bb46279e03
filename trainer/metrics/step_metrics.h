// StepMetrics: what the trainer knows after an optimizer step, for the log, TensorBoard and the
// progress line. A value; thread-safe as values are.

#ifndef CRIA_TRAINER_METRICS_STEP_METRICS_H_
#define CRIA_TRAINER_METRICS_STEP_METRICS_H_

#include <cstdint>
#include <optional>

namespace cria::trainer {

struct StepMetrics {
  int64_t step = 0;      // optimizer steps done, this one included
  int64_t steps = 0;     // of the whole run
  int64_t tokens = 0;    // tokens trained on, this step's included
  double loss = 0;       // nats per counted token; NaN for a step that was skipped
  double lr = 0;         // of this step
  double grad_norm = 0;  // before clipping
  double tokens_per_s = 0;
  double mfu = 0;           // fraction of the machine's FLOP/s; attention counted causally, half
  double mfu_full = 0;      // the same with attention's whole T x T square counted
  double seconds_left = 0;  // < 0 or NaN: unknown
  // Of this rank, where there are others: the share of the step's time with communication in it,
  // and how much of that went on behind computing (debug/stream_times.h).
  std::optional<double> comm_share, comm_overlap;
  std::optional<double> val_loss;  // set where the step was followed by an evaluation
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_METRICS_STEP_METRICS_H_

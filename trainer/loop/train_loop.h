// TrainLoop: a training run from its first step, or from a checkpoint, to its last.
//
//   TrainLoop loop(config, {.out_dir = "runs/a", .ops = ops.get(), .clock = RealClock(), .stop =
//   &stop}); CRIA_RETURN_IF_ERROR(loop.Open(train_split, val_split));
//   CRIA_RETURN_IF_ERROR(loop.Resume(checkpoint_dir));     // or Init, or neither
//   CRIA_ASSIGN_OR_RETURN(TrainSummary summary, loop.Run());
//
// A step: read the global batch that (seed, step) names, add up the gradients of its micro-batches,
// each weighted by the valid tokens of the whole batch, clip, update. A step whose loss, gradients
// or FP8 operands are not finite changes nothing but the cursor; its first bad tensor is named;
// after max_bad_steps in a row the run ends with an error and the last good checkpoint stays.
//
// The run's folder: config.yaml (resolved), metrics.jsonl, tensorboard/, checkpoints/step_N.
// What a run computes depends on the configuration alone: the same bits from run to run, for any
// number of threads, and across any stop and resume. Single-threaded; `stop` may be set by a signal
// handler.
//
// In a parallel job each rank has a TrainLoop of the same configuration, with its groups. All read
// the same stream, each its share; they agree after every step on loss, norm and whether to go on.
// Rank 0 writes the run's folder, all write their parts of checkpoints. An error on one rank is the
// caller's to pass on (Communicator::Abort).

#ifndef CRIA_TRAINER_LOOP_TRAIN_LOOP_H_
#define CRIA_TRAINER_LOOP_TRAIN_LOOP_H_

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "debug/stream_times.h"
#include "model/io/weight_source.h"
#include "model/llama/llama.h"
#include "model/ops.h"
#include "model/parallel/groups.h"
#include "trainer/config/train_config.h"
#include "trainer/data/batch_stream.h"
#include "trainer/loop/agreement.h"
#include "trainer/loop/rank_batches.h"
#include "trainer/loop/step_trace.h"
#include "trainer/loop/step_watcher.h"
#include "trainer/loop/train_state.h"
#include "trainer/metrics/metrics_log.h"
#include "trainer/metrics/progress_line.h"
#include "trainer/metrics/tensorboard.h"
#include "trainer/optimizer/adamw.h"

namespace cria::trainer {

struct TrainLoopOptions {
  std::string out_dir;
  model::Ops* ops = nullptr;
  Clock* clock = nullptr;
  const std::atomic<int>* stop = nullptr;  // non-zero: finish the step, save, return
  std::FILE* progress = nullptr;           // null: silent
  double peak_flops = 0;                   // of all ranks' machines, for MFU; 0: unknown
  const model::Groups* groups = nullptr;   // null: one rank
  // Of these any may be null.
  debug::StreamTimes* times = nullptr;  // the observer of the groups: shares of communication
  StepTrace* trace = nullptr;
  StepWatcher* watcher = nullptr;
};

struct TrainSummary {
  int64_t steps = 0;
  int64_t tokens = 0;
  bool stopped = false;  // by the flag, before the last step
  double first_loss = 0, last_loss = 0;
  std::optional<double> val_loss;
  int64_t skipped_steps = 0;
  double seconds = 0;
  double tokens_per_s = 0;
  std::string checkpoint_dir;  // the last one written
};

class TrainLoop {
 public:
  TrainLoop(const TrainConfig& config, const TrainLoopOptions& options);

  // Opens the splits. `val` may be empty: then nothing is evaluated. Writes nothing.
  Status Open(const TokenDataset* train, const TokenDataset* val);
  // Starts from another model's weights in place of random ones. Errors of LoadWeights.
  Status Init(const model::WeightSource& weights);
  // Goes on from a checkpoint folder, which must be of the same model, data and batches.
  Status Resume(const std::string& checkpoint_dir);
  // Writes the run's folder from here on. Checkpoints of later steps, of a branch that this run
  // leaves, are set aside (resume_checks.h).
  StatusOr<TrainSummary> Run();

  model::Llama* model() { return &model_; }

 private:
  struct StepResult {
    double loss = 0;
    double grad_norm = 0;
    std::string bad;  // what was not finite; empty when all was
    std::optional<double> comm_share, comm_overlap;
  };

  bool writes() const { return options_.groups == nullptr || options_.groups->world->rank() == 0; }
  Status OpenRunFolder();
  debug::Trace* trace() const {
    return options_.trace == nullptr ? nullptr : options_.trace->trace();
  }
  comm::Communicator* world() const {
    return options_.groups == nullptr ? nullptr : options_.groups->world;
  }
  // RunStep, with what watches it. `step_of_run` counts from 1.
  StatusOr<StepResult> RunWatchedStep(int64_t step, int64_t step_of_run, int64_t batch_size);
  StatusOr<StepResult> RunStep(int64_t step, int64_t batch_size);
  StatusOr<GradientNorm> Norm();
  Status Update(int64_t step, double grad_norm);
  StatusOr<StepReport> Agree(const model::LossSum& loss);
  // The first thing that is not finite, in the order in which a step meets them: weights, FP8
  // operands, the loss, gradients. Of many ranks with the first rank where it is so; gradients are
  // sums over ranks. `own` is this rank's part of the loss.
  StatusOr<std::string> FindBad(const model::LossSum& own, const GradientNorm& norm) const;
  std::string FindBadHere(const model::LossSum& own) const;
  StatusOr<double> Evaluate();
  Status Save();
  Status Record(const StepResult& result, int64_t batch_size, double seconds, bool evaluate);
  // Alone at once; of many ranks what they agreed on after the last step.
  bool MustStop() const;
  bool StopRequested() const;

  const TrainConfig config_;
  const TrainLoopOptions options_;
  const LearningRateSchedule schedule_;
  const BatchSchedule batches_;
  const std::string config_yaml_;
  const Agreement agreement_;
  model::Llama model_;
  AdamW optimizer_;
  Cursor cursor_;
  std::optional<BatchStream> train_stream_, val_stream_;
  std::optional<RankBatches> train_batches_, val_batches_;
  bool stop_ = false;  // agreed on
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  std::optional<ProgressPrinter> printer_;
  double step_seconds_ = 0;  // smoothed
  TrainSummary summary_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_TRAIN_LOOP_H_

#include "trainer/loop/train_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/parallel/load_parts.h"
#include "trainer/loop/rank_options.h"
#include "trainer/loop/resume_checks.h"

namespace cria::trainer {
namespace {

model::Coordinates CoordinatesIn(const model::Groups* groups) {
  return groups == nullptr ? model::Coordinates{} : groups->at;
}

model::Layout LayoutOf(const model::Groups* groups) {
  return groups == nullptr ? model::Layout{} : groups->layout;
}

model::LlamaOptions ModelOptions(const TrainConfig& config, const TrainLoopOptions& options) {
  const int rank = options.groups == nullptr ? 0 : options.groups->world->rank();
  model::LlamaOptions model = RankOptions(config, LayoutOf(options.groups), rank);
  if (options.trace != nullptr) model.trace = options.trace->trace();
  return model;
}

}  // namespace

TrainLoop::TrainLoop(const TrainConfig& config, const TrainLoopOptions& options)
    : config_(config),
      options_(options),
      schedule_(config.LearningRate()),
      batches_(config.Batches()),
      config_yaml_(WriteTrainConfig(config)),
      agreement_(options.groups == nullptr ? nullptr : options.groups->world),
      model_(config.model, ModelOptions(config, options), options.ops, options.groups),
      optimizer_(model_.parameters(), config.AdamW(), options.ops) {
  if (options.progress != nullptr && writes()) printer_.emplace(options.progress, options.clock);
  model_.parameters()->Initialize(static_cast<uint64_t>(config.seed));
}

Status TrainLoop::Open(const TokenDataset* train, const TokenDataset* val) {
  const BatchStream::Options stream = {.seq = config_.train.seq,
                                       .seed = static_cast<uint64_t>(config_.seed),
                                       .shuffle = config_.data.shuffle};
  train_stream_.emplace(train, stream);
  if (train_stream_->samples_per_epoch() == 0) {
    return InvalidArgumentError("the training split is empty");
  }
  if (train->manifest().vocab_size > config_.model.vocab) {
    return InvalidArgumentError("model.vocab: ", config_.model.vocab, " is under the tokenizer's ",
                                train->manifest().vocab_size);
  }
  val_stream_.emplace(val, BatchStream::Options{.seq = config_.train.seq, .shuffle = false});
  const RankBatchOptions rank = {
      .micro_batch = std::min(config_.train.micro_batch, model_.options().max_batch),
      .seq = config_.train.seq};
  const model::Layout layout = LayoutOf(options_.groups);
  const model::Coordinates at = CoordinatesIn(options_.groups);
  train_batches_.emplace(&*train_stream_, layout, at, rank);
  val_batches_.emplace(&*val_stream_, layout, at, rank);
  cursor_.data_fingerprint = DataFingerprint(train->manifest(), config_.data.shuffle);
  return OkStatus();
}

Status TrainLoop::Init(const model::WeightSource& weights) {
  CRIA_RETURN_IF_ERROR(model::LoadParts(weights, config_.model, model_.parameters()));
  return OkStatus();
}

Status TrainLoop::Resume(const std::string& checkpoint_dir) {
  comm::Communicator* world = options_.groups == nullptr ? nullptr : options_.groups->world;
  CRIA_ASSIGN_OR_RETURN(const LoadedCheckpoint checkpoint, LoadCheckpoint(checkpoint_dir, world));
  const CheckpointState& state = checkpoint.state();
  if (state.seed != static_cast<uint64_t>(config_.seed)) {
    return InvalidArgumentError(checkpoint_dir, ": its seed is ", state.seed, ", the job's ",
                                config_.seed);
  }
  if (state.samples != SamplesAfter(batches_, state.step)) {
    return InvalidArgumentError(checkpoint_dir, ": ", state.samples, " sequences after ",
                                state.step, " steps; the job's batches make it ",
                                SamplesAfter(batches_, state.step));
  }
  if (state.tokens != state.samples * config_.train.seq) {
    return InvalidArgumentError(checkpoint_dir, ": ", state.tokens, " tokens after ", state.samples,
                                " sequences; the job's train.seq is ", config_.train.seq);
  }
  CRIA_RETURN_IF_ERROR(CheckSameModel(state.config_yaml, config_yaml_, checkpoint_dir));
  const int64_t data_fingerprint = cursor_.data_fingerprint;
  CRIA_ASSIGN_OR_RETURN(cursor_, RestoreTrainState(checkpoint, &model_, &optimizer_));
  if (cursor_.data_fingerprint != data_fingerprint) {
    return InvalidArgumentError(checkpoint_dir, ": it was trained on other data (fingerprint ",
                                cursor_.data_fingerprint, ", the job's ", data_fingerprint, ")");
  }
  summary_.checkpoint_dir = checkpoint_dir;
  return OkStatus();
}

Status TrainLoop::OpenRunFolder() {
  if (!writes()) return OkStatus();
  CRIA_RETURN_IF_ERROR(MakeDirs(options_.out_dir));
  // In this order, a kill in between leaves the run as it was before, or one that goes on from
  // here.
  CRIA_RETURN_IF_ERROR(SetAsideNewerCheckpoints(options_.out_dir, cursor_.step));
  CRIA_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(options_.out_dir, "config.yaml"), config_yaml_));
  CRIA_ASSIGN_OR_RETURN(
      metrics_, MetricsLog::Open(JoinPath(options_.out_dir, "metrics.jsonl"), cursor_.step));
  if (config_.tensorboard) {
    CRIA_ASSIGN_OR_RETURN(tensorboard_,
                          TensorBoardWriter::Create(JoinPath(options_.out_dir, "tensorboard"),
                                                    cursor_.step, options_.clock));
  }
  return OkStatus();
}

StatusOr<TrainSummary> TrainLoop::Run() {
  CRIA_RETURN_IF_ERROR(OpenRunFolder());
  const double start = options_.clock->MonotonicSeconds();
  const int64_t first_step = cursor_.step;
  int64_t saved_step = summary_.checkpoint_dir.empty() ? -1 : cursor_.step;
  int64_t tokens_before = cursor_.tokens;
  Status failure = OkStatus();
  while (cursor_.step < config_.steps && !MustStop()) {
    const int64_t step = cursor_.step + 1;
    const int64_t batch_size = BatchSize(batches_, step);
    const double before = options_.clock->MonotonicSeconds();
    CRIA_ASSIGN_OR_RETURN(const StepResult result,
                          RunWatchedStep(step, step - first_step, batch_size));
    cursor_.step = step;
    cursor_.samples += batch_size;
    cursor_.tokens += batch_size * config_.train.seq;
    const bool last = step == config_.steps;
    const bool evaluate =
        last || (config_.train.eval_every > 0 && step % config_.train.eval_every == 0);
    CRIA_RETURN_IF_ERROR(
        Record(result, batch_size, options_.clock->MonotonicSeconds() - before, evaluate));
    if (!result.bad.empty()) {
      ++summary_.skipped_steps;
      ++cursor_.bad_steps_in_row;
      if (printer_) printer_->Finish();
      if (writes()) {
        LogWarning("step ", step, " skipped: ", result.bad, " is not finite (",
                   cursor_.bad_steps_in_row, " of ", config_.train.max_bad_steps, " in a row)");
      }
      if (cursor_.bad_steps_in_row >= config_.train.max_bad_steps) {
        failure = InternalError(
            "stopped at step ", step, " after ", cursor_.bad_steps_in_row,
            " steps in a row that were not finite (the last: ", result.bad, "); ",
            saved_step >= 0 ? StrCat("the last good checkpoint is ", summary_.checkpoint_dir)
                            : std::string("no checkpoint had been written"));
        break;
      }
    } else {
      cursor_.bad_steps_in_row = 0;
    }
    const bool save =
        last || (config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0);
    if (save && result.bad.empty()) {
      CRIA_RETURN_IF_ERROR(Save());
      saved_step = step;
    }
  }
  if (printer_) printer_->Finish();
  if (options_.trace != nullptr) CRIA_RETURN_IF_ERROR(options_.trace->Finish(world()));
  CRIA_RETURN_IF_ERROR(failure);
  summary_.stopped = cursor_.step < config_.steps;
  if (saved_step != cursor_.step && cursor_.step > 0) CRIA_RETURN_IF_ERROR(Save());
  if (metrics_) CRIA_RETURN_IF_ERROR(metrics_->Sync());
  if (tensorboard_) CRIA_RETURN_IF_ERROR(tensorboard_->Flush());
  summary_.steps = cursor_.step - first_step;
  summary_.tokens = cursor_.tokens - tokens_before;
  summary_.seconds = options_.clock->MonotonicSeconds() - start;
  summary_.tokens_per_s = static_cast<double>(summary_.tokens) / std::max(summary_.seconds, 1e-9);
  return summary_;
}

StatusOr<TrainLoop::StepResult> TrainLoop::RunWatchedStep(int64_t step, int64_t step_of_run,
                                                          int64_t batch_size) {
  if (options_.trace != nullptr) options_.trace->Begin(step_of_run);
  if (options_.times != nullptr) options_.times->BeginStep();
  CRIA_ASSIGN_OR_RETURN(StepResult result, RunStep(step, batch_size));
  if (options_.times != nullptr) {
    const debug::StepTimes& times = options_.times->EndStep();
    result.comm_share = times.share();
    result.comm_overlap = times.overlap();
  }
  if (options_.trace != nullptr) CRIA_RETURN_IF_ERROR(options_.trace->End(step_of_run, world()));
  if (options_.watcher != nullptr) options_.watcher->OnUpdated(step, *model_.parameters());
  return result;
}

StatusOr<TrainLoop::StepResult> TrainLoop::RunStep(int64_t step, int64_t batch_size) {
  const debug::TraceSpan span(trace(), "step", {{"step", step}});
  {
    const debug::TraceSpan read(trace(), "read batch");
    train_batches_->Read(cursor_.samples, batch_size);
  }
  if (options_.watcher != nullptr) options_.watcher->OnBatches(step, *train_batches_);
  const model::Coordinates at = CoordinatesIn(options_.groups);
  const bool counts = at.tp == 0 && at.cp == 0 && at.pp == 0;
  CRIA_ASSIGN_OR_RETURN(const int64_t num_valid,
                        agreement_.Sum(counts ? train_batches_->num_valid() : 0));
  {
    const debug::TraceSpan zero(trace(), "zero gradients");
    model_.ZeroGradients();
  }
  // Weighted by the valid tokens of the whole batch, however it is cut into micro-batches and over
  // ranks.
  const float grad_scale = 1.0f / static_cast<float>(std::max<int64_t>(num_valid, 1));
  model::LossSum loss;
  CRIA_RETURN_IF_ERROR(model_.Train(train_batches_->micro_batches(), grad_scale, &loss));
  {
    const debug::TraceSpan sums(trace(), "finish gradients");
    CRIA_RETURN_IF_ERROR(model_.parameters()->FinishGradients());
  }
  CRIA_ASSIGN_OR_RETURN(const GradientNorm norm, Norm());
  CRIA_ASSIGN_OR_RETURN(const StepReport report, Agree(loss));
  StepResult result;
  result.loss = report.loss_sum / static_cast<double>(std::max<int64_t>(num_valid, 1));
  result.grad_norm = norm.value;
  if (!std::isfinite(result.loss) || !norm.finite() || report.bad_operand) {
    CRIA_ASSIGN_OR_RETURN(result.bad, FindBad(loss, norm));
  } else {
    CRIA_RETURN_IF_ERROR(Update(step, norm.value));
  }
  CRIA_RETURN_IF_ERROR(model_.linears()->EndStep(
      /*skipped=*/!result.bad.empty(),
      options_.groups == nullptr ? nullptr : options_.groups->stage.get()));
  return result;
}

StatusOr<GradientNorm> TrainLoop::Norm() {
  const debug::TraceSpan span(trace(), "gradient norm");
  return optimizer_.Norm();
}

Status TrainLoop::Update(int64_t step, double grad_norm) {
  {
    const debug::TraceSpan span(trace(), "optimizer");
    optimizer_.Step(LearningRate(schedule_, step), grad_norm);
  }
  const debug::TraceSpan span(trace(), "gather weights");
  return model_.parameters()->GatherWeights();
}

StatusOr<StepReport> TrainLoop::Agree(const model::LossSum& loss) {
  const bool counts = CoordinatesIn(options_.groups).tp == 0;  // all tp ranks have the same
  CRIA_ASSIGN_OR_RETURN(
      const StepReport report,
      agreement_.Combine({.loss_sum = counts ? loss.sum : 0,
                          .num_valid = counts ? loss.num_valid : 0,
                          .bad_operand = !model_.linears()->first_non_finite().empty(),
                          .stop = StopRequested()}));
  stop_ = report.stop;
  return report;
}

// Texts are in the order of the list above the declaration, each made comparable by a digit.
std::string TrainLoop::FindBadHere(const model::LossSum& own) const {
  const model::ParameterBuffers& buffers = model_.parameters();
  for (const model::Parameter& parameter : model_.layout().parameters()) {
    const double squares = options_.ops->SumOfSquares(buffers.KeptOf(parameter).values);
    if (!std::isfinite(squares)) return "0weight " + parameter.name;
  }
  const std::string& operand = model_.linears().first_non_finite();
  if (!operand.empty()) return "1FP8 operand " + operand;
  return std::isfinite(own.sum) ? "" : "2the loss";
}

StatusOr<std::string> TrainLoop::FindBad(const model::LossSum& own,
                                         const GradientNorm& norm) const {
  CRIA_ASSIGN_OR_RETURN(const Agreement::FirstText first, agreement_.First(FindBadHere(own)));
  if (first.text.empty()) {
    return norm.finite() ? "the sum of the losses" : "gradient of " + norm.first_non_finite;
  }
  const std::string what = first.text.substr(1);
  return options_.groups == nullptr ? what : StrCat(what, " on rank ", first.rank);
}

StatusOr<double> TrainLoop::Evaluate() {
  const int64_t num_samples =
      std::min(config_.train.eval_samples, val_stream_->samples_per_epoch());
  val_batches_->Read(0, num_samples);
  model::LossSum loss;
  CRIA_RETURN_IF_ERROR(model_.Evaluate(val_batches_->micro_batches(), &loss));
  CRIA_ASSIGN_OR_RETURN(const StepReport report, Agree(loss));
  return report.loss_sum / static_cast<double>(std::max<int64_t>(report.num_valid, 1));
}

Status TrainLoop::Save() {
  // Lines first: a checkpoint never knows more steps than the log.
  if (metrics_) CRIA_RETURN_IF_ERROR(metrics_->Sync());
  const std::string dir = JoinPath(options_.out_dir, "checkpoints");
  CRIA_RETURN_IF_ERROR(Annotate(SaveTrainState(dir, cursor_, static_cast<uint64_t>(config_.seed),
                                               config_yaml_, &model_, optimizer_),
                                StrCat("save step ", cursor_.step)));
  summary_.checkpoint_dir = CheckpointDir(dir, cursor_.step);
  if (!writes()) return OkStatus();
  return PruneCheckpoints(dir, static_cast<int>(config_.checkpoint.keep), cursor_.step);
}

Status TrainLoop::Record(const StepResult& result, int64_t batch_size, double seconds,
                         bool evaluate) {
  const auto tokens = static_cast<double>(batch_size * config_.train.seq);
  step_seconds_ = step_seconds_ == 0 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  const model::FlopsPerToken flops = model::CountFlops(config_.model, config_.train.seq);
  const double share = options_.peak_flops > 0 ? tokens / seconds / options_.peak_flops
                                               : std::numeric_limits<double>::quiet_NaN();
  StepMetrics m;
  m.step = cursor_.step;
  m.steps = config_.steps;
  m.tokens = cursor_.tokens;
  m.loss = result.bad.empty() ? result.loss : std::numeric_limits<double>::quiet_NaN();
  m.lr = LearningRate(schedule_, cursor_.step);
  m.grad_norm = result.grad_norm;
  m.tokens_per_s = tokens / seconds;
  m.mfu = (flops.matmul + flops.attention_causal) * share;
  m.mfu_full = (flops.matmul + flops.attention_full) * share;
  m.comm_share = result.comm_share;
  m.comm_overlap = result.comm_overlap;
  m.seconds_left = step_seconds_ * static_cast<double>(config_.steps - cursor_.step);
  if (evaluate && val_stream_->samples_per_epoch() > 0) {
    CRIA_ASSIGN_OR_RETURN(m.val_loss, Evaluate());
  }
  if (result.bad.empty()) {
    if (summary_.first_loss == 0) summary_.first_loss = result.loss;
    summary_.last_loss = result.loss;
  }
  if (m.val_loss) summary_.val_loss = m.val_loss;
  if (!writes()) return OkStatus();
  CRIA_RETURN_IF_ERROR(metrics_->Append(m));
  if (printer_) printer_->Print(m);
  if (!tensorboard_) return OkStatus();
  std::vector<std::pair<std::string, double>> scalars = {{"train/loss", m.loss},
                                                         {"train/lr", m.lr},
                                                         {"train/grad_norm", m.grad_norm},
                                                         {"speed/tokens_per_s", m.tokens_per_s},
                                                         {"speed/mfu", m.mfu}};
  if (m.comm_share) scalars.emplace_back("speed/comm_share", *m.comm_share);
  if (m.comm_overlap) scalars.emplace_back("speed/comm_overlap", *m.comm_overlap);
  if (m.val_loss) scalars.emplace_back("val/loss", *m.val_loss);
  return tensorboard_->Scalars(m.step, scalars);
}

bool TrainLoop::MustStop() const { return options_.groups == nullptr ? StopRequested() : stop_; }

bool TrainLoop::StopRequested() const {
  return options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed) != 0;
}

}  // namespace cria::trainer

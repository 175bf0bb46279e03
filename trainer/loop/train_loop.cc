#include "trainer/loop/train_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/llama/load_weights.h"
#include "trainer/loop/resume_checks.h"

namespace cria::trainer {

TrainLoop::TrainLoop(const TrainConfig& config, const TrainLoopOptions& options)
    : config_(config),
      options_(options),
      schedule_(config.LearningRate()),
      batches_(config.Batches()),
      config_yaml_(WriteTrainConfig(config)),
      model_(config.model, config.LlamaOptions(), options.ops),
      optimizer_(model_.layout(), config.AdamW(), options.ops) {
  if (options.progress != nullptr) printer_.emplace(options.progress, options.clock);
  model::InitializeParameters(model_.layout(), static_cast<uint64_t>(config.seed),
                              model_.weights());
  model_.WeightsChanged();
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
  cursor_.data_fingerprint = DataFingerprint(train->manifest(), config_.data.shuffle);
  return OkStatus();
}

Status TrainLoop::Init(const model::WeightSource& weights) {
  CRIA_RETURN_IF_ERROR(model::LoadWeights(weights, model_.layout(), model_.weights()));
  model_.WeightsChanged();
  return OkStatus();
}

Status TrainLoop::Resume(const std::string& checkpoint_dir) {
  CRIA_ASSIGN_OR_RETURN(const LoadedCheckpoint checkpoint, LoadCheckpoint(checkpoint_dir));
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
  while (cursor_.step < config_.steps && !StopRequested()) {
    const int64_t step = cursor_.step + 1;
    const int64_t batch_size = BatchSize(batches_, step);
    const double before = options_.clock->MonotonicSeconds();
    const StepResult result = RunStep(step, batch_size);
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
      LogWarning("step ", step, " skipped: ", result.bad, " is not finite (",
                 cursor_.bad_steps_in_row, " of ", config_.train.max_bad_steps, " in a row)");
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
  CRIA_RETURN_IF_ERROR(failure);
  summary_.stopped = cursor_.step < config_.steps;
  if (saved_step != cursor_.step && cursor_.step > 0) CRIA_RETURN_IF_ERROR(Save());
  CRIA_RETURN_IF_ERROR(metrics_->Sync());
  if (tensorboard_) CRIA_RETURN_IF_ERROR(tensorboard_->Flush());
  summary_.steps = cursor_.step - first_step;
  summary_.tokens = cursor_.tokens - tokens_before;
  summary_.seconds = options_.clock->MonotonicSeconds() - start;
  summary_.tokens_per_s = static_cast<double>(summary_.tokens) / std::max(summary_.seconds, 1e-9);
  return summary_;
}

TrainLoop::StepResult TrainLoop::RunStep(int64_t step, int64_t batch_size) {
  train_stream_->Read(cursor_.samples, batch_size, &batch_);
  model_.ZeroGradients();
  // Weighted by the valid tokens of the whole batch, however it is cut into micro-batches.
  const float grad_scale = 1.0f / static_cast<float>(std::max<int64_t>(batch_.num_valid, 1));
  double loss_sum = 0;
  for (int64_t begin = 0; begin < batch_size; begin += config_.train.micro_batch) {
    const int64_t end = std::min(batch_size, begin + config_.train.micro_batch);
    loss_sum += model_.ForwardBackward(Rows(&batch_, begin, end), grad_scale).sum;
  }
  const GradientNorm norm = optimizer_.Norm(model_.gradients());
  StepResult result;
  result.loss = loss_sum / static_cast<double>(std::max<int64_t>(batch_.num_valid, 1));
  result.grad_norm = norm.value;
  result.bad = FindBad(result.loss, norm);
  if (result.bad.empty()) {
    optimizer_.Step(model_.weights(), model_.gradients(), LearningRate(schedule_, step),
                    norm.value);
    model_.WeightsChanged();
  }
  model_.linears()->EndStep(/*skipped=*/!result.bad.empty());
  return result;
}

std::string TrainLoop::FindBad(double loss, const GradientNorm& norm) const {
  const std::string& operand = model_.linears().first_non_finite();
  if (std::isfinite(loss) && norm.finite() && operand.empty()) return "";
  // In the order in which a step meets them: weights, FP8 operands, the loss, gradients.
  for (const model::Parameter& parameter : model_.layout().parameters()) {
    const double squares = options_.ops->SumOfSquares(
        model_.weights().Rows(parameter.offset, parameter.offset + parameter.num_elements()));
    if (!std::isfinite(squares)) return "weight " + parameter.name;
  }
  if (!operand.empty()) return "FP8 operand " + operand;
  if (!std::isfinite(loss)) return "the loss";
  return "gradient of " + norm.first_non_finite;
}

double TrainLoop::Evaluate() {
  const int64_t num_samples =
      std::min(config_.train.eval_samples, val_stream_->samples_per_epoch());
  model::LossSum total;
  const int64_t rows = config_.LlamaOptions().max_batch;
  for (int64_t begin = 0; begin < num_samples; begin += rows) {
    const int64_t count = std::min(num_samples - begin, rows);
    val_stream_->Read(begin, count, &val_batch_);
    const model::LossSum loss = model_.Evaluate(Rows(&val_batch_, 0, count));
    total.sum += loss.sum;
    total.num_valid += loss.num_valid;
  }
  return total.sum / static_cast<double>(std::max<int64_t>(total.num_valid, 1));
}

Status TrainLoop::Save() {
  // Lines first: a checkpoint never knows more steps than the log.
  CRIA_RETURN_IF_ERROR(metrics_->Sync());
  const std::string dir = JoinPath(options_.out_dir, "checkpoints");
  CRIA_RETURN_IF_ERROR(Annotate(SaveTrainState(dir, cursor_, static_cast<uint64_t>(config_.seed),
                                               config_yaml_, &model_, optimizer_),
                                StrCat("save step ", cursor_.step)));
  summary_.checkpoint_dir = CheckpointDir(dir, cursor_.step);
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
  m.seconds_left = step_seconds_ * static_cast<double>(config_.steps - cursor_.step);
  if (evaluate && val_stream_->samples_per_epoch() > 0) m.val_loss = Evaluate();
  if (result.bad.empty()) {
    if (summary_.first_loss == 0) summary_.first_loss = result.loss;
    summary_.last_loss = result.loss;
  }
  if (m.val_loss) summary_.val_loss = m.val_loss;
  CRIA_RETURN_IF_ERROR(metrics_->Append(m));
  if (printer_) printer_->Print(m);
  if (!tensorboard_) return OkStatus();
  std::vector<std::pair<std::string, double>> scalars = {{"train/loss", m.loss},
                                                         {"train/lr", m.lr},
                                                         {"train/grad_norm", m.grad_norm},
                                                         {"speed/tokens_per_s", m.tokens_per_s},
                                                         {"speed/mfu", m.mfu}};
  if (m.val_loss) scalars.emplace_back("val/loss", *m.val_loss);
  return tensorboard_->Scalars(m.step, scalars);
}

model::TokenBatch TrainLoop::Rows(Batch* batch, int64_t begin, int64_t end) const {
  const int64_t seq = batch->seq;
  const auto view = [&](std::vector<int32_t>& x) {
    return model::Tensor(x.data() + begin * seq, model::DType::kI32, {(end - begin) * seq});
  };
  return {.batch = end - begin,
          .time = seq,
          .tokens = view(batch->tokens_BT),
          .targets = view(batch->targets_BT),
          .positions = view(batch->positions_BT),
          .doc_start = view(batch->doc_start_BT)};
}

bool TrainLoop::StopRequested() const {
  return options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed) != 0;
}

}  // namespace cria::trainer

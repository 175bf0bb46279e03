// The head of a stage: the loss in tiles of rows, over a vocabulary that may be split.

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/llama/stage.h"

namespace cria::model {

// Sums each row's softmax over the ranks that hold parts of the vocabulary, in rank order: all get
// the same bits. Leaves the log-sum-exp in lse and the losses in `losses`.
Status Stage::CombineSoftmax(int64_t tile, const Tensor& targets, const Tensor& losses,
                             const Tensor& lse) {
  const int64_t stride = b_.stats.dim(1);
  CRIA_RETURN_IF_ERROR(split_.group()
                           ->AllGather({.input = b_.stats.data(),
                                        .output = b_.all_stats.data(),
                                        .count = b_.stats.num_elements()})
                           .Wait());
  const float* stats = b_.all_stats.f32();
  const auto at = [&](int rank, int which, int64_t row) {
    return stats[(rank * 3 + which) * stride + row];
  };
  for (int64_t row = 0; row < tile; ++row) {
    float max = at(0, 0, row);
    for (int rank = 1; rank < split_.size(); ++rank) max = std::max(max, at(rank, 0, row));
    double sum = 0, target = 0;
    for (int rank = 0; rank < split_.size(); ++rank) {
      const double shift = static_cast<double>(at(rank, 0, row)) - static_cast<double>(max);
      sum += static_cast<double>(at(rank, 1, row)) * std::exp(shift);
      target += static_cast<double>(at(rank, 2, row));
    }
    const double log_sum = static_cast<double>(max) + std::log(sum);
    lse.f32()[row] = static_cast<float>(log_sum);
    losses.f32()[row] = targets.i32()[row] < 0 ? 0.0f : static_cast<float>(log_sum - target);
  }
  return OkStatus();
}

Status Stage::TileLoss(const StageStep& step, const Tensor& targets, const Tensor& logits,
                       const Tensor& losses, const Tensor& dlogits) {
  if (split_.size() == 1) {
    ops_->CrossEntropy({.logits = logits,
                        .targets = targets,
                        .losses = losses,
                        .dlogits = dlogits,
                        .grad_scale = step.grad_scale,
                        .z_loss = options_.z_loss});
    return OkStatus();
  }
  const int64_t tile = logits.dim(0);
  const int64_t first_class = parameters_.slice().vocab.begin;
  const auto stats = [&](int which) {
    return b_.stats.Rows(which, which + 1).View({b_.stats.dim(1)}).Rows(0, tile);
  };
  ops_->LogitStats({.logits = logits,
                    .targets = targets,
                    .first_class = first_class,
                    .max = stats(0),
                    .sum = stats(1),
                    .target_logit = stats(2)});
  CRIA_RETURN_IF_ERROR(CombineSoftmax(tile, targets, losses, stats(0)));
  if (!dlogits.defined()) return OkStatus();
  ops_->LogitGradient({.logits = logits,
                       .targets = targets,
                       .first_class = first_class,
                       .lse = stats(0),
                       .dlogits = dlogits,
                       .grad_scale = step.grad_scale,
                       .z_loss = options_.z_loss});
  return OkStatus();
}

Status Stage::HeadLoss(const StageStep& step, LossSum* loss) {
  const TokenBatch& batch = step.batch;
  const int64_t num_rows = rows(batch), tile_rows = b_.logits.dim(0);
  const int64_t vocab = parameters_.slice().vocab.size();
  const int block = parameters_.head_block();
  CRIA_ASSIGN_OR_RETURN(const Tensor weights, store_->Weights(block));
  const Tensor head = weights.View({vocab, config_.dim});
  Tensor gradient;
  if (step.backward) {
    CRIA_ASSIGN_OR_RETURN(const Tensor flat, store_->Gradients(block));
    gradient = flat.View({vocab, config_.dim});
  }
  for (int64_t begin = 0; begin < num_rows; begin += tile_rows) {
    const int64_t end = std::min(num_rows, begin + tile_rows);
    const Tensor hidden = b_.final_normed.Rows(begin, end);
    const Tensor logits = b_.logits.Rows(0, end - begin);
    ops_->Matmul({.a = hidden,
                  .b = head,
                  .c = logits,
                  .transpose_b = true,
                  .b_is_weight = true,
                  .keep_b = store_->keeps_weights()});
    Tensor dlogits;
    if (step.backward) {
      dlogits = b_.low_logits.defined() ? b_.low_logits.Rows(0, end - begin) : logits;
    }
    CRIA_RETURN_IF_ERROR(TileLoss(step, batch.targets.Rows(begin, end), logits,
                                  b_.losses.Rows(begin, end), dlogits));
    if (!step.backward) continue;
    ops_->Matmul({.a = dlogits,
                  .b = head,
                  .c = b_.dnormed_partial.Rows(begin, end),
                  .b_is_weight = true,
                  .keep_b = store_->keeps_weights()});
    ops_->Matmul(
        {.a = dlogits, .b = hidden, .c = gradient, .transpose_a = true, .accumulate = true});
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    if (batch.targets.i32()[row] < 0) continue;
    loss->sum += b_.losses.f32()[row];
    ++loss->num_valid;
  }
  if (!step.backward) return OkStatus();
  // A tied matrix on one rank gets more from the embedding.
  const bool final = step.last && !(config_.tied_head && parameters_.slice().embedding);
  CRIA_RETURN_IF_ERROR(store_->GradientsAdded(block, final));
  ops_->Zero(Boundary(step.slot, batch));
  return NormBackward({.x = b_.final_x.Rows(0, own_rows(batch)),
                       .weight = NormWeight(parameters_.final_norm()),
                       .rstd = b_.final_rstd.Rows(0, own_rows(batch))},
                      parameters_.final_norm(), step);
}

Status Stage::Logits(const TokenBatch& batch, int64_t begin, int64_t end, const Tensor& logits) {
  CRIA_CHECK(options_.layout.world_size() == 1, "logits of a part of a model");
  CRIA_RETURN_IF_ERROR(ForwardLayers({.batch = batch, .record = false, .backward = false}));
  CRIA_ASSIGN_OR_RETURN(const Tensor weights, store_->Weights(parameters_.head_block()));
  ops_->Matmul({.a = b_.final_normed.Rows(begin, end),
                .b = weights.View({config_.vocab, config_.dim}),
                .c = logits,
                .transpose_b = true,
                .b_is_weight = true,
                .keep_b = store_->keeps_weights()});
  return OkStatus();
}

}  // namespace cria::model

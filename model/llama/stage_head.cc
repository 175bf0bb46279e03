// The head of a stage: the loss in tiles of rows, over a vocabulary that may be split.

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "debug/trace.h"
#include "model/llama/stage.h"
#include "model/placement.h"

namespace cria::model {

namespace {

// Losses of invariant numerics are multiples of this: sums of them are exact in double, in any
// order.
constexpr double kLossUnit = 0x1p-24;

}  // namespace

// Of the vocabulary's rows that this rank holds: all, or as many shares as there are heads.
std::vector<Range> Stage::VocabGrains() const {
  const Range vocab = parameters_.slice().vocab;
  if (!options_.invariant()) return {{0, vocab.size()}};
  std::vector<Range> grains;
  const Range heads = parameters_.slice().heads;
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    const Range grain =
        PartOf(config_.vocab, static_cast<int>(config_.heads), static_cast<int>(head));
    grains.push_back({grain.begin - vocab.begin, grain.end - vocab.begin});
  }
  return grains;
}

// Sums each row's softmax over all parts of the vocabulary, in their order: all ranks get the same
// bits.
Status Stage::CombineSoftmax(int64_t tile, const Tensor& targets, const Tensor& losses) {
  const int64_t stride = b_.stats.dim(2), parts = b_.all_stats.dim(0);
  Tensor all = b_.stats;
  if (split_.group() != nullptr) {
    all = b_.all_stats;
    CRIA_RETURN_IF_ERROR(
        split_.group()
            ->AllGather(
                {.input = b_.stats.data(), .output = all.data(), .count = b_.stats.num_elements()})
            .Wait());
  }
  const auto at = [&](int64_t part, int which, int64_t row) {
    return static_cast<double>(all.f32()[(part * 3 + which) * stride + row]);
  };
  for (int64_t row = 0; row < tile; ++row) {
    double max = at(0, 0, row);
    for (int64_t part = 1; part < parts; ++part) max = std::max(max, at(part, 0, row));
    double sum = 0, target = 0;
    for (int64_t part = 0; part < parts; ++part) {
      sum += at(part, 1, row) * std::exp(at(part, 0, row) - max);
      target += at(part, 2, row);
    }
    const double log_sum = max + std::log(sum);
    b_.lse.f32()[row] = static_cast<float>(log_sum);
    losses.f32()[row] = targets.i32()[row] < 0 ? 0.0f : static_cast<float>(log_sum - target);
  }
  return OkStatus();
}

Status Stage::TileLoss(const StageStep& step, const Tensor& targets, const Tensor& logits,
                       const Tensor& losses, const Tensor& dlogits) {
  if (!b_.stats.defined()) {
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
  const std::vector<Range> grains = VocabGrains();
  for (size_t i = 0; i < grains.size(); ++i) {
    const auto part = static_cast<int64_t>(i);
    const Tensor stats = b_.stats.Rows(part, part + 1).View({3, b_.stats.dim(2)});
    const auto of_tile = [&](int which) {
      return stats.Rows(which, which + 1).View({stats.dim(1)}).Rows(0, tile);
    };
    ops_->LogitStats({.logits = logits.Columns(grains[i].begin, grains[i].end),
                      .targets = targets,
                      .first_class = first_class + grains[i].begin,
                      .max = of_tile(0),
                      .sum = of_tile(1),
                      .target_logit = of_tile(2)});
  }
  CRIA_RETURN_IF_ERROR(CombineSoftmax(tile, targets, losses));
  if (!dlogits.defined()) return OkStatus();
  ops_->LogitGradient({.logits = logits,
                       .targets = targets,
                       .first_class = first_class,
                       .lse = b_.lse.Rows(0, tile),
                       .dlogits = dlogits,
                       .grad_scale = step.grad_scale,
                       .z_loss = options_.z_loss});
  return OkStatus();
}

// The gradients of a tile of rows: of the head's input, before their sum over tp, and of its
// matrix.
void Stage::HeadGradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& head,
                          int64_t begin, const Tensor& gradient) {
  const int64_t end = begin + hidden.dim(0);
  if (!options_.invariant()) {
    ops_->Matmul({.a = dlogits,
                  .b = head,
                  .c = b_.dnormed_partial.Rows(begin, end),
                  .b_is_weight = true,
                  .keep_b = store_->keeps_weights()});
    ops_->Matmul(
        {.a = dlogits, .b = hidden, .c = gradient, .transpose_a = true, .accumulate = true});
    return;
  }
  const Tensor sums = b_.sums.Rows(begin, end);
  ops_->Zero(sums);
  for (const Range& grain : VocabGrains()) {
    grains_.AddInputGradient(dlogits.Columns(grain.begin, grain.end),
                             head.Rows(grain.begin, grain.end), sums);
  }
  grains_.AddWeightGradient(dlogits, hidden, gradient);
  NoteFinite("gradient of the head");
}

Status Stage::HeadLoss(const StageStep& step, LossSum* loss) {
  const debug::TraceSpan span(options_.trace, "head and loss");
  const TokenBatch& batch = step.batch;
  const int64_t num_rows = rows(batch), tile_rows = b_.logits.dim(0);
  const int64_t vocab = parameters_.slice().vocab.size();
  const int block = parameters_.head_block();
  CRIA_ASSIGN_OR_RETURN(const Tensor weights, store_->Weights(block));
  const Tensor head = weights.View({vocab, config_.dim}).Placed(Placement::kShard0);
  Tensor gradient;
  if (step.backward) {
    CRIA_ASSIGN_OR_RETURN(const Tensor flat, store_->Gradients(block));
    gradient = flat.View({vocab, config_.dim}).Placed(Placement::kShard0);
  }
  CRIA_ASSIGN_OR_RETURN(const Tensor normed, split_.Gather(b_.final_normed.Rows(0, num_rows)));
  for (int64_t begin = 0; begin < num_rows; begin += tile_rows) {
    const int64_t end = std::min(num_rows, begin + tile_rows);
    const Tensor hidden = normed.Rows(begin, end);
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
    HeadGradients(dlogits, hidden, head, begin, gradient);
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    if (batch.targets.i32()[row] < 0) continue;
    const double one = b_.losses.f32()[row];
    loss->sum += options_.invariant() ? std::nearbyint(one / kLossUnit) * kLossUnit : one;
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

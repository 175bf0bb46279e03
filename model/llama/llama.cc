#include "model/llama/llama.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/str.h"
#include "model/llama/rope_table.h"

namespace cria::model {
namespace {

// The four GEMM groups of a layer, as Linears counts them.
enum LinearOfLayer { kQkv, kOut, kGateUp, kDown, kLinearsPerLayer };
constexpr const char* kLinearNames[] = {"qkv", "out", "gate_up", "down"};

int64_t LinearId(int64_t layer, LinearOfLayer which) { return layer * kLinearsPerLayer + which; }

// Rows of a tile of the head: its logits stay within about 8 MiB, near the cache.
int64_t HeadTileRows(const LlamaConfig& config, int64_t max_rows) {
  constexpr int64_t kTileBytes = 8 << 20;
  const int64_t rows = std::clamp<int64_t>(kTileBytes / (4 * config.vocab), 16, 256) / 16 * 16;
  return std::min(rows, max_rows);
}

StepShape ShapeOf(const LlamaConfig& config, const LlamaOptions& options) {
  return {.batch = options.max_batch,
          .time = options.max_time,
          .dim = config.dim,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.HeadDim(),
          .ffn = config.ffn,
          .vocab = config.vocab,
          .matmul_elements = ParameterLayout(config).num_matmul_elements(),
          .head_rows = HeadTileRows(config, options.max_batch * options.max_time),
          .bf16 = ComputeType(options.precision) == DType::kBF16,
          .training = options.training};
}

int64_t ArenaBytes(const MemoryPlan& plan) {
  return plan.weights + plan.compute_copy + plan.gradients + plan.activations;
}

}  // namespace

FlopsPerToken CountFlops(const LlamaConfig& config, int64_t time) {
  const ParameterLayout layout(config);
  // Scores and values: 2 GEMMs of QDim x visible keys each, 2 flops an element, x 3 with backward.
  const double per_key = 3.0 * 2.0 * 2.0 * static_cast<double>(config.layers * config.QDim());
  return {.matmul = 6.0 * static_cast<double>(layout.num_matmul_elements()),
          .attention_causal = per_key * static_cast<double>(time) / 2,
          .attention_full = per_key * static_cast<double>(time)};
}

Llama::Buffers Llama::Allocate(const LlamaConfig& config, const LlamaOptions& options, Arena* arena,
                               MemoryPlan* plan) {
  const ParameterLayout layout(config);
  const DType type = ComputeType(options.precision);
  const bool low = type != DType::kF32;
  const int64_t n = layout.num_elements();
  const int64_t rows = options.max_batch * options.max_time;
  const int64_t qkv_dim = config.QDim() + 2 * config.KvDim();
  int64_t before = 0;
  const auto bytes_since = [&] {
    const int64_t bytes = arena->used_bytes() - before;
    before = arena->used_bytes();
    return bytes;
  };

  Buffers b;
  b.weights = arena->Alloc(DType::kF32, {n});
  plan->weights = bytes_since();
  b.compute_weights = low ? arena->Alloc(type, {n}) : b.weights;
  plan->compute_copy = bytes_since();
  if (options.training) b.gradients = arena->Alloc(DType::kF32, {n});
  plan->gradients = bytes_since();

  const Recompute recompute = options.training ? options.recompute : Recompute::kFull;
  LayerState shared;
  for (int64_t i = 0; i < config.layers; ++i) {
    // What each policy keeps a copy of per layer; the first layer's copy serves all otherwise.
    const bool keeps_x = options.training || i == 0;
    const bool keeps_most = recompute != Recompute::kFull || i == 0;
    const bool keeps_cheap = recompute == Recompute::kNone || i == 0;
    LayerState s = shared;
    if (keeps_x) s.x = arena->Alloc(DType::kF32, {rows, config.dim});
    if (keeps_most) {
      s.mid = arena->Alloc(DType::kF32, {rows, config.dim});
      s.rstd_attention = arena->Alloc(DType::kF32, {rows});
      s.rstd_ffn = arena->Alloc(DType::kF32, {rows});
      s.qkv = arena->Alloc(type, {rows, qkv_dim});
      s.attention = arena->Alloc(type, {rows, config.QDim()});
      s.lse = arena->Alloc(DType::kF32, {rows * config.heads});
      s.gate_up = arena->Alloc(type, {rows, 2 * config.ffn});
    }
    if (keeps_cheap) {
      s.normed_attention = arena->Alloc(type, {rows, config.dim});
      s.normed_ffn = arena->Alloc(type, {rows, config.dim});
      s.act = arena->Alloc(type, {rows, config.ffn});
    }
    if (i == 0) shared = s;
    b.layers.push_back(s);
  }
  b.cosines = arena->Alloc(DType::kF32, {options.max_time, config.HeadDim() / 2});
  b.sines = arena->Alloc(DType::kF32, {options.max_time, config.HeadDim() / 2});
  b.delta = arena->Alloc(type, {rows, config.dim});
  b.final_x = arena->Alloc(DType::kF32, {rows, config.dim});
  b.final_rstd = arena->Alloc(DType::kF32, {rows});
  b.final_normed = arena->Alloc(type, {rows, config.dim});
  const int64_t tile_rows = HeadTileRows(config, rows);
  b.logits = arena->Alloc(DType::kF32, {tile_rows, config.vocab});
  b.losses = arena->Alloc(DType::kF32, {rows});
  if (options.training) {
    if (low) b.low_logits = arena->Alloc(type, {tile_rows, config.vocab});
    b.dx = arena->Alloc(DType::kF32, {rows, config.dim});
    if (low) b.dx_low = arena->Alloc(type, {rows, config.dim});
    b.dnormed = arena->Alloc(type, {rows, config.dim});
    b.dattention = arena->Alloc(type, {rows, config.QDim()});
    b.dqkv = arena->Alloc(type, {rows, qkv_dim});
    b.dact = arena->Alloc(type, {rows, config.ffn});
  }
  plan->activations = bytes_since();
  return b;
}

Linears Llama::AllocateLinears(const LlamaConfig& config, const LlamaOptions& options, Ops* ops,
                               Arena* arena) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < config.layers; ++i) {
    for (const char* name : kLinearNames) names.push_back(StrCat("model.layers.", i, ".", name));
  }
  const int64_t qkv_dim = config.QDim() + 2 * config.KvDim();
  const int64_t widest = std::max({qkv_dim, 2 * config.ffn, config.dim, config.QDim()});
  // Of [qkv, dim], [dim, q], [2 ffn, dim] and [dim, ffn] the largest.
  const int64_t largest_weight = config.dim * std::max(qkv_dim, 2 * config.ffn);
  return Linears(ops, options.precision, names, options.max_batch * options.max_time * widest,
                 largest_weight, arena);
}

MemoryPlan Llama::Plan(const LlamaConfig& config, const LlamaOptions& options, const Ops& ops) {
  MemoryPlan plan;
  Arena arena = Arena::Planning();
  Allocate(config, options, &arena, &plan);
  const int64_t before = arena.used_bytes();
  AllocateLinears(config, options, nullptr, &arena);
  plan.activations += arena.used_bytes() - before;
  plan.workspace = ops.WorkspaceBytes(ShapeOf(config, options));
  return plan;
}

Llama::Llama(const LlamaConfig& config, const LlamaOptions& options, Ops* ops)
    : config_(config),
      options_(options),
      layout_(config),
      ops_(ops),
      arena_(ArenaBytes(Plan(config, options, *ops))),
      b_([&] {
        MemoryPlan unused;
        return Allocate(config, options, &arena_, &unused);
      }()),
      linears_(AllocateLinears(config, options, ops, &arena_)) {
  FillRopeTable(config_, b_.cosines, b_.sines);
}

void Llama::WeightsChanged() {
  if (b_.compute_weights.data() != b_.weights.data()) ops_->Copy(b_.weights, b_.compute_weights);
  ops_->WeightsChanged();
}

void Llama::ZeroGradients() { ops_->Zero(b_.gradients); }

Tensor Llama::W(int64_t offset, int64_t rows, int64_t columns) const {
  const int64_t n = layout_.num_elements();
  return b_.compute_weights.View({1, n})
      .Columns(offset, offset + rows * columns)
      .View({rows, columns});
}

Tensor Llama::Gradient(int64_t offset, int64_t rows, int64_t columns) const {
  const int64_t n = layout_.num_elements();
  return b_.gradients.View({1, n}).Columns(offset, offset + rows * columns).View({rows, columns});
}

Tensor Llama::NormW(int64_t offset) const { return b_.weights.Rows(offset, offset + config_.dim); }

Tensor Llama::NormGradient(int64_t offset) const {
  return b_.gradients.Rows(offset, offset + config_.dim);
}

Llama::LayerState Llama::State(int64_t layer, const TokenBatch& batch) const {
  const int64_t rows = batch.batch * batch.time;
  LayerState s = b_.layers[static_cast<size_t>(layer)];
  for (Tensor* tensor : {&s.x, &s.mid, &s.normed_attention, &s.normed_ffn, &s.rstd_attention,
                         &s.rstd_ffn, &s.qkv, &s.attention, &s.gate_up, &s.act}) {
    *tensor = tensor->Rows(0, rows);
  }
  s.lse = s.lse.Rows(0, rows * config_.heads);
  return s;
}

AttentionForwardArgs Llama::AttentionArgs(const LayerState& s, const TokenBatch& batch) const {
  const int64_t q_dim = config_.QDim(), kv_dim = config_.KvDim();
  return {.q = s.qkv.Columns(0, q_dim),
          .k = s.qkv.Columns(q_dim, q_dim + kv_dim),
          .v = s.qkv.Columns(q_dim + kv_dim, q_dim + 2 * kv_dim),
          .doc_start = batch.doc_start,
          .out = s.attention,
          .lse = s.lse,
          .batch = batch.batch,
          .time = batch.time,
          .heads = config_.heads,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.HeadDim(),
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.HeadDim())))};
}

// From the first norm's output to what the layer adds to the residual (in delta).
void Llama::RunLayer(int64_t layer, const LayerState& s, const TokenBatch& batch, bool record) {
  const LayerOffsets& at = layout_.layer(layer);
  const int64_t q_dim = config_.QDim(), kv_dim = config_.KvDim();
  const Tensor delta = b_.delta.Rows(0, s.x.dim(0));
  linears_.Forward({.id = LinearId(layer, kQkv),
                    .x = s.normed_attention,
                    .w = W(at.qkv, q_dim + 2 * kv_dim, config_.dim),
                    .y = s.qkv,
                    .record = record});
  ops_->Rope({.x = s.qkv.Columns(0, q_dim + kv_dim),
              .positions = batch.positions,
              .cosines = b_.cosines,
              .sines = b_.sines,
              .head_dim = config_.HeadDim()});
  ops_->AttentionForward(AttentionArgs(s, batch));
  linears_.Forward({.id = LinearId(layer, kOut),
                    .x = s.attention,
                    .w = W(at.out, config_.dim, q_dim),
                    .y = delta,
                    .record = record});
  ops_->RmsNormForward({.x = s.x,
                        .delta = delta,
                        .sum = s.mid,
                        .weight = NormW(at.ffn_norm),
                        .y = s.normed_ffn,
                        .rstd = s.rstd_ffn,
                        .eps = static_cast<float>(config_.norm_eps)});
  linears_.Forward({.id = LinearId(layer, kGateUp),
                    .x = s.normed_ffn,
                    .w = W(at.gate_up, 2 * config_.ffn, config_.dim),
                    .y = s.gate_up,
                    .record = record});
  ops_->SwigluForward({.gate_up = s.gate_up, .act = s.act});
  linears_.Forward({.id = LinearId(layer, kDown),
                    .x = s.act,
                    .w = W(at.down, config_.dim, config_.ffn),
                    .y = delta,
                    .record = record});
}

void Llama::ForwardLayers(const TokenBatch& batch, bool record) {
  const int64_t rows = batch.batch * batch.time;
  CRIA_CHECK(batch.batch <= options_.max_batch && batch.time <= options_.max_time, "batch ",
             batch.batch, " x ", batch.time, " in a model made for ", options_.max_batch, " x ",
             options_.max_time);
  const float eps = static_cast<float>(config_.norm_eps);
  const Tensor delta = b_.delta.Rows(0, rows);
  ops_->EmbeddingForward({.tokens = batch.tokens,
                          .table = b_.weights.Prefix({config_.vocab, config_.dim}),
                          .out = b_.layers[0].x.Rows(0, rows)});
  Tensor residual;  // what the last layer started from, before its delta
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const LayerState s = State(layer, batch);
    const Tensor weight = NormW(layout_.layer(layer).attention_norm);
    RmsNormForwardArgs norm = {
        .x = s.x, .weight = weight, .y = s.normed_attention, .rstd = s.rstd_attention, .eps = eps};
    if (layer > 0) {
      norm.x = residual;
      norm.delta = delta;
      norm.sum = s.x;
    }
    ops_->RmsNormForward(norm);
    RunLayer(layer, s, batch, record);
    residual = s.mid;
  }
  ops_->RmsNormForward({.x = residual,
                        .delta = delta,
                        .sum = b_.final_x.Rows(0, rows),
                        .weight = NormW(layout_.final_norm()),
                        .y = b_.final_normed.Rows(0, rows),
                        .rstd = b_.final_rstd.Rows(0, rows),
                        .eps = eps});
}

LossSum Llama::HeadLoss(const TokenBatch& batch, bool backward, float grad_scale) {
  const int64_t rows = batch.batch * batch.time;
  const int64_t tile_rows = b_.logits.dim(0);
  const Tensor head = W(layout_.head(), config_.vocab, config_.dim);
  for (int64_t begin = 0; begin < rows; begin += tile_rows) {
    const int64_t end = std::min(rows, begin + tile_rows);
    const Tensor hidden = b_.final_normed.Rows(begin, end);
    const Tensor logits = b_.logits.Rows(0, end - begin);
    ops_->Matmul({.a = hidden, .b = head, .c = logits, .transpose_b = true, .b_is_weight = true});
    Tensor dlogits;
    if (backward) dlogits = b_.low_logits.defined() ? b_.low_logits.Rows(0, end - begin) : logits;
    ops_->CrossEntropy({.logits = logits,
                        .targets = batch.targets.Rows(begin, end),
                        .losses = b_.losses.Rows(begin, end),
                        .dlogits = dlogits,
                        .grad_scale = grad_scale,
                        .z_loss = options_.z_loss});
    if (!backward) continue;
    ops_->Matmul({.a = dlogits, .b = head, .c = b_.dnormed.Rows(begin, end), .b_is_weight = true});
    ops_->Matmul({.a = dlogits,
                  .b = hidden,
                  .c = Gradient(layout_.head(), config_.vocab, config_.dim),
                  .transpose_a = true,
                  .accumulate = true});
  }
  LossSum loss;
  for (int64_t row = 0; row < rows; ++row) {
    if (batch.targets.i32()[row] < 0) continue;
    loss.sum += b_.losses.f32()[row];
    ++loss.num_valid;
  }
  return loss;
}

void Llama::BackwardLayer(int64_t layer, const TokenBatch& batch) {
  const LayerState s = State(layer, batch);
  const LayerOffsets& at = layout_.layer(layer);
  const int64_t rows = s.x.dim(0);
  const int64_t q_dim = config_.QDim(), kv_dim = config_.KvDim(), qkv_dim = q_dim + 2 * kv_dim;
  const float eps = static_cast<float>(config_.norm_eps);
  const Tensor dx = b_.dx.Rows(0, rows);
  const Tensor dx_low = b_.dx_low.defined() ? b_.dx_low.Rows(0, rows) : Tensor();
  const Tensor dy = dx_low.defined() ? dx_low : dx;  // the same numbers as a GEMM operand
  const Tensor dnormed = b_.dnormed.Rows(0, rows);
  const RmsNormForwardArgs attention_norm = {.x = s.x,
                                             .weight = NormW(at.attention_norm),
                                             .y = s.normed_attention,
                                             .rstd = s.rstd_attention,
                                             .eps = eps};
  const RmsNormForwardArgs ffn_norm = {
      .x = s.mid, .weight = NormW(at.ffn_norm), .y = s.normed_ffn, .rstd = s.rstd_ffn, .eps = eps};
  if (options_.recompute == Recompute::kFull) {
    ops_->RmsNormForward(attention_norm);
    RunLayer(layer, s, batch, /*record=*/false);
  } else if (options_.recompute == Recompute::kSelective) {
    ops_->RmsNormForward(ffn_norm);
  }

  // MLP.
  const LinearBackwardArgs down = {.id = LinearId(layer, kDown),
                                   .dy = dy,
                                   .x = s.act,
                                   .w = W(at.down, config_.dim, config_.ffn),
                                   .dx = b_.dact.Rows(0, rows),
                                   .dw = Gradient(at.down, config_.dim, config_.ffn)};
  linears_.BackwardInput(down);
  const bool act_again = options_.recompute == Recompute::kSelective;
  ops_->SwigluBackward({.gate_up = s.gate_up,
                        .dact = down.dx,
                        .dgate_up = s.gate_up,
                        .act = act_again ? s.act : Tensor()});
  linears_.BackwardWeight(down);
  const LinearBackwardArgs gate_up = {.id = LinearId(layer, kGateUp),
                                      .dy = s.gate_up,
                                      .x = s.normed_ffn,
                                      .w = W(at.gate_up, 2 * config_.ffn, config_.dim),
                                      .dx = dnormed,
                                      .dw = Gradient(at.gate_up, 2 * config_.ffn, config_.dim)};
  linears_.BackwardInput(gate_up);
  linears_.BackwardWeight(gate_up);
  ops_->RmsNormBackward({.dy = dnormed,
                         .x = s.mid,
                         .weight = ffn_norm.weight,
                         .rstd = s.rstd_ffn,
                         .dx = dx,
                         .dx_copy = dx_low,
                         .dweight = NormGradient(at.ffn_norm)});

  // Attention.
  if (options_.recompute == Recompute::kSelective) ops_->RmsNormForward(attention_norm);
  const LinearBackwardArgs out = {.id = LinearId(layer, kOut),
                                  .dy = dy,
                                  .x = s.attention,
                                  .w = W(at.out, config_.dim, q_dim),
                                  .dx = b_.dattention.Rows(0, rows),
                                  .dw = Gradient(at.out, config_.dim, q_dim)};
  linears_.BackwardInput(out);
  linears_.BackwardWeight(out);
  const Tensor dqkv = b_.dqkv.Rows(0, rows);
  ops_->AttentionBackward({.forward = AttentionArgs(s, batch),
                           .dout = out.dx,
                           .dq = dqkv.Columns(0, q_dim),
                           .dk = dqkv.Columns(q_dim, q_dim + kv_dim),
                           .dv = dqkv.Columns(q_dim + kv_dim, qkv_dim)});
  ops_->Rope({.x = dqkv.Columns(0, q_dim + kv_dim),
              .positions = batch.positions,
              .cosines = b_.cosines,
              .sines = b_.sines,
              .head_dim = config_.HeadDim(),
              .inverse = true});
  const LinearBackwardArgs qkv = {.id = LinearId(layer, kQkv),
                                  .dy = dqkv,
                                  .x = s.normed_attention,
                                  .w = W(at.qkv, qkv_dim, config_.dim),
                                  .dx = dnormed,
                                  .dw = Gradient(at.qkv, qkv_dim, config_.dim)};
  linears_.BackwardInput(qkv);
  linears_.BackwardWeight(qkv);
  ops_->RmsNormBackward({.dy = dnormed,
                         .x = s.x,
                         .weight = attention_norm.weight,
                         .rstd = s.rstd_attention,
                         .dx = dx,
                         .dx_copy = dx_low,
                         .dweight = NormGradient(at.attention_norm)});
}

LossSum Llama::ForwardBackward(const TokenBatch& batch, float grad_scale) {
  CRIA_CHECK(options_.training, "this model was made without gradients");
  const int64_t rows = batch.batch * batch.time;
  ForwardLayers(batch, /*record=*/true);
  const LossSum loss = HeadLoss(batch, /*backward=*/true, grad_scale);
  const Tensor dx = b_.dx.Rows(0, rows);
  ops_->Zero(dx);
  ops_->RmsNormBackward({.dy = b_.dnormed.Rows(0, rows),
                         .x = b_.final_x.Rows(0, rows),
                         .weight = NormW(layout_.final_norm()),
                         .rstd = b_.final_rstd.Rows(0, rows),
                         .dx = dx,
                         .dx_copy = b_.dx_low.defined() ? b_.dx_low.Rows(0, rows) : Tensor(),
                         .dweight = NormGradient(layout_.final_norm())});
  for (int64_t layer = config_.layers - 1; layer >= 0; --layer) BackwardLayer(layer, batch);
  ops_->EmbeddingBackward({.tokens = batch.tokens,
                           .dout = dx,
                           .dtable = Gradient(layout_.embedding(), config_.vocab, config_.dim)});
  return loss;
}

LossSum Llama::Evaluate(const TokenBatch& batch) {
  ForwardLayers(batch, /*record=*/false);
  return HeadLoss(batch, /*backward=*/false, 0);
}

void Llama::Logits(const TokenBatch& batch, int64_t begin, int64_t end, const Tensor& logits) {
  ForwardLayers(batch, /*record=*/false);
  ops_->Matmul({.a = b_.final_normed.Rows(begin, end),
                .b = W(layout_.head(), config_.vocab, config_.dim),
                .c = logits,
                .transpose_b = true,
                .b_is_weight = true});
}

}  // namespace cria::model

#include "model/llama/stage.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "debug/trace.h"
#include "model/llama/rope_table.h"
#include "model/parallel/context_parallel.h"
#include "model/parallel/parameter_buffers.h"
#include "model/placement.h"

namespace cria::model {
namespace {

// The four GEMM groups of a layer, as Linears counts them.
enum LinearOfLayer { kQkv, kOut, kGateUp, kDown, kLinearsPerLayer };

int64_t LinearId(int64_t layer, LinearOfLayer which) { return layer * kLinearsPerLayer + which; }

// A block's elements from an offset on as a matrix.
Tensor MatrixAt(const Tensor& block, int64_t offset, int64_t rows, int64_t columns,
                Placement placement) {
  return block.Rows(offset, offset + rows * columns).View({rows, columns}).Placed(placement);
}

// One of a layer's matrices, or its gradient, in the layer's block.
Tensor MatrixOf(LinearOfLayer which, const LlamaConfig& local, const LayerOffsets& at,
                const Tensor& block) {
  const int64_t qkv_dim = local.QDim() + 2 * local.KvDim();
  switch (which) {
    case kQkv:
      return MatrixAt(block, at.qkv, qkv_dim, local.dim, Placement::kShard0);
    case kOut:
      return MatrixAt(block, at.out, local.dim, local.QDim(), Placement::kShard1);
    case kGateUp:
      return MatrixAt(block, at.gate_up, 2 * local.ffn, local.dim, Placement::kShard0);
    case kDown:
    case kLinearsPerLayer:
      break;
  }
  return MatrixAt(block, at.down, local.dim, local.ffn, Placement::kShard1);
}

int64_t ArenaBytes(const LlamaConfig& config, const StageOptions& options,
                   const ParameterLayout& parameters) {
  Arena plan = Arena::Planning();
  StageBuffers::Allocate(config, options, parameters, &plan);
  AllocateLinears(config, options, parameters, nullptr, &plan);
  return plan.used_bytes();
}

ParameterLayout ParametersOf(const LlamaConfig& config, const StageOptions& options) {
  return ParameterLayout(config, SliceOf(options.layout, config, options.rank));
}

}  // namespace

StageMemory Stage::Plan(const LlamaConfig& config, const StageOptions& options, const Ops& ops) {
  const ParameterLayout parameters = ParametersOf(config, options);
  return {.activations = ArenaBytes(config, options, parameters),
          .workspace = ops.WorkspaceBytes(ShapeOf(config, options, parameters))};
}

Stage::Stage(const LlamaConfig& config, const StageOptions& options, Ops* ops,
             ParameterStore* store, const Groups* groups)
    : config_(config),
      options_(options),
      parameters_(ParametersOf(config, options)),
      local_(LocalConfig(config, parameters_.slice())),
      ops_(ops),
      store_(store),
      groups_(groups),
      split_(groups == nullptr ? nullptr : groups->tp.get()),
      arena_(ArenaBytes(config, options, parameters_)),
      b_(StageBuffers::Allocate(config, options, parameters_, &arena_)),
      linears_(AllocateLinears(config, options, parameters_, ops, &arena_)),
      grains_(ops, options.token_grain, b_.product) {
  CRIA_CHECK(!options.invariant() || options.precision == Precision::kFp32);
  CRIA_CHECK_EQ(split_.size(), options.layout.tp);
  linears_.set_keeps_weights(store->keeps_weights());
  if (groups != nullptr) {
    linears_.set_groups(
        {.tp = groups->tp.get(), .cp = groups->cp.get(), .all = groups->operands.get()});
  }
  FillRopeTable(config_, b_.cosines, b_.sines);
}

bool Stage::last(int chunk) const {
  return parameters_.slice().head &&
         chunk + 1 == static_cast<int>(parameters_.slice().chunks.size());
}

LayerRange Stage::LayersOfChunk(int chunk) const {
  LayerRange layers;
  for (int c = 0; c <= chunk; ++c) {
    const LayerRange& range = parameters_.slice().chunks[static_cast<size_t>(c)];
    layers.begin = layers.end;
    layers.end += range.end - range.begin;
  }
  return layers;
}

LayerState Stage::State(int64_t layer, const StageStep& step) const {
  const TokenBatch& batch = step.batch;
  const int64_t r = own_rows(batch), all = rows(batch);
  const int64_t in_chunk = layer - LayersOfChunk(step.chunk).begin;
  LayerState s = b_.layers[static_cast<size_t>(step.slot)][static_cast<size_t>(in_chunk)];
  for (Tensor* tensor : {&s.x, &s.mid, &s.rstd_attention, &s.rstd_ffn}) {
    *tensor = tensor->Rows(0, r);
  }
  for (Tensor* tensor :
       {&s.normed_attention, &s.normed_ffn, &s.qkv, &s.attention, &s.gate_up, &s.act}) {
    *tensor = tensor->Rows(0, all);
  }
  return s;
}

Tensor Stage::Input(int slot, const TokenBatch& batch) const {
  return b_.layers[static_cast<size_t>(slot)].front().x.Rows(0, own_rows(batch));
}

Tensor Stage::Boundary(int slot, const TokenBatch& batch) const {
  return b_.boundaries[static_cast<size_t>(slot)].Rows(0, own_rows(batch));
}

StatusOr<Stage::LayerWeights> Stage::WeightsOf(int64_t layer, int64_t prefetch) {
  LayerWeights w;
  CRIA_ASSIGN_OR_RETURN(w.block, store_->Weights(parameters_.layer_block(layer)));
  w.at = parameters_.layer(layer);
  w.factors = store_->WeightFactors(parameters_.layer_block(layer));
  if (prefetch >= 0) store_->Prefetch(parameters_.layer_block(prefetch));
  return w;
}

Tensor Stage::NormWeight(int64_t offset) const {
  return store_->Norms().Rows(offset, offset + config_.dim);
}

StatusOr<Tensor> Stage::NormGradient(int64_t offset) {
  CRIA_ASSIGN_OR_RETURN(const Tensor norms, store_->Gradients(parameters_.norms_block()));
  // Of this rank's rows.
  return norms.Rows(offset, offset + config_.dim).Placed(Placement::kPartial);
}

// ---- forward ----

Status Stage::Embed(const StageStep& step, const Tensor& x) {
  CRIA_ASSIGN_OR_RETURN(const Tensor table, store_->EmbeddingTable());
  const Range vocab = parameters_.slice().vocab;
  const Tensor all = b_.embedded.defined() ? b_.embedded.Rows(0, rows(step.batch)) : x;
  ops_->EmbeddingForward(
      {.tokens = step.batch.tokens,
       .table = table.View({vocab.size(), config_.dim}).Placed(Placement::kShard0),
       .out = all,
       .first_token = vocab.begin});
  return split_.SumAndScatter(all, x);
}

Status Stage::Forward(const StageStep& step, LossSum* loss) {
  const TokenBatch& batch = step.batch;
  CRIA_CHECK(batch.batch <= options_.max_batch && batch.time <= options_.max_time, "batch ",
             batch.batch, " x ", batch.time, " in a model made for ", options_.max_batch, " x ",
             options_.max_time);
  CRIA_RETURN_IF_ERROR(ForwardLayers(step));
  return last(step.chunk) ? HeadLoss(step, loss) : OkStatus();
}

Status Stage::ForwardLayers(const StageStep& step) {
  const TokenBatch& batch = step.batch;
  const float eps = static_cast<float>(config_.norm_eps);
  const Tensor delta = b_.delta.Rows(0, own_rows(batch));
  const LayerRange layers = LayersOfChunk(step.chunk);
  const Tensor input = Input(step.slot, batch);
  if (first(step.chunk)) CRIA_RETURN_IF_ERROR(Embed(step, input));
  Tensor residual = input;  // what the last layer started from, before its delta
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const debug::TraceSpan span(options_.trace, "layer forward",
                                {{"layer", LayerOfModel(step.chunk, layer)}});
    const LayerState s = State(layer, step);
    CRIA_ASSIGN_OR_RETURN(const LayerWeights w,
                          WeightsOf(layer, layer + 1 < layers.end ? layer + 1 : -1));
    RmsNormForwardArgs norm = {.x = s.x,
                               .weight = NormWeight(w.at.attention_norm),
                               .y = split_.Own(s.normed_attention),
                               .rstd = s.rstd_attention,
                               .eps = eps};
    if (layer > layers.begin) {
      norm.x = residual;
      norm.delta = delta;
      norm.sum = s.x;
    }
    ops_->RmsNormForward(norm);
    CRIA_RETURN_IF_ERROR(RunLayer(layer, w, s, batch, step.record));
    residual = s.mid;
  }
  // The first and the last chunk may be embedding or head alone.
  const bool no_layers = layers.size() == 0;
  if (!last(step.chunk)) {
    const Tensor out = Boundary(step.slot, batch);
    no_layers ? ops_->Copy(input, out) : ops_->Add({.a = residual, .b = delta, .out = out});
    return OkStatus();
  }
  RmsNormForwardArgs norm = {.x = residual,
                             .weight = NormWeight(parameters_.final_norm()),
                             .y = split_.Own(b_.final_normed.Rows(0, rows(batch))),
                             .rstd = b_.final_rstd.Rows(0, own_rows(batch)),
                             .eps = eps};
  const Tensor final_x = b_.final_x.Rows(0, own_rows(batch));
  if (no_layers) {
    ops_->Copy(input, final_x);
  } else {
    norm.delta = delta;
    norm.sum = final_x;
  }
  ops_->RmsNormForward(norm);
  return OkStatus();
}

Status Stage::RunLayer(int64_t layer, const LayerWeights& w, const LayerState& s,
                       const TokenBatch& batch, bool record) {
  const int64_t q_dim = local_.QDim(), kv_dim = local_.KvDim();
  const Tensor delta = b_.delta.Rows(0, own_rows(batch));
  const Tensor partial = b_.delta_partial.Rows(0, rows(batch));
  CRIA_ASSIGN_OR_RETURN(const Tensor normed_attention, split_.Gather(s.normed_attention));
  CRIA_RETURN_IF_ERROR(linears_.Forward({.id = LinearId(layer, kQkv),
                                         .x = normed_attention,
                                         .w = MatrixOf(kQkv, local_, w.at, w.block),
                                         .y = s.qkv,
                                         .w_factor = w.factor(kQkv),
                                         .record = record}));
  ops_->Rope({.x = s.qkv.Columns(0, q_dim + kv_dim),
              .positions = batch.positions,
              .cosines = b_.cosines,
              .sines = b_.sines,
              .head_dim = local_.HeadDim()});
  CRIA_RETURN_IF_ERROR(Attention(s, batch));
  CRIA_RETURN_IF_ERROR(RowProduct({.id = LinearId(layer, kOut),
                                   .x = s.attention,
                                   .w = MatrixOf(kOut, local_, w.at, w.block),
                                   .y = partial,
                                   .w_factor = w.factor(kOut),
                                   .record = record},
                                  delta));
  ops_->RmsNormForward({.x = s.x,
                        .delta = delta,
                        .sum = s.mid,
                        .weight = NormWeight(w.at.ffn_norm),
                        .y = split_.Own(s.normed_ffn),
                        .rstd = s.rstd_ffn,
                        .eps = static_cast<float>(config_.norm_eps)});
  CRIA_ASSIGN_OR_RETURN(const Tensor normed_ffn, split_.Gather(s.normed_ffn));
  CRIA_RETURN_IF_ERROR(linears_.Forward({.id = LinearId(layer, kGateUp),
                                         .x = normed_ffn,
                                         .w = MatrixOf(kGateUp, local_, w.at, w.block),
                                         .y = s.gate_up,
                                         .w_factor = w.factor(kGateUp),
                                         .record = record}));
  ops_->SwigluForward({.gate_up = s.gate_up, .act = s.act});
  return RowProduct({.id = LinearId(layer, kDown),
                     .x = s.act,
                     .w = MatrixOf(kDown, local_, w.at, w.block),
                     .y = partial,
                     .w_factor = w.factor(kDown),
                     .record = record},
                    delta);
}

Status Stage::RowProduct(const LinearForwardArgs& args, const Tensor& own) {
  if (!options_.invariant()) {
    CRIA_RETURN_IF_ERROR(linears_.Forward(args));
    return SumRows(args.y, own);
  }
  const Tensor sums = b_.sums.Rows(0, args.y.dim(0));
  ops_->Zero(sums);
  grains_.AddOutputs(args.x, args.w, local_.heads, sums);
  NoteFinite("what a layer adds to the residual");
  CRIA_ASSIGN_OR_RETURN(const Tensor own_sums, split_.SumInPlace(sums));
  ops_->FixedToFloat({.from = own_sums, .to = own, .log2_scale = kActivationLog2Scale});
  return OkStatus();
}

Status Stage::SumRows(const Tensor& partial, const Tensor& own) {
  if (partial.dtype() == own.dtype()) return split_.SumAndScatter(partial, own);
  CRIA_ASSIGN_OR_RETURN(const Tensor sum, split_.SumInPlace(partial));
  ops_->Copy(sum, own);
  return OkStatus();
}

void Stage::NoteFinite(const char* where) {
  if (!grains_.TakeFinite()) linears_.NoteNonFinite(where);
}

// ---- attention ----

StatusOr<Tensor> Stage::KeysAndValues(const LayerState& s, const TokenBatch& batch) {
  const int64_t q_dim = local_.QDim(), kv = 2 * local_.KvDim();
  const Tensor own = s.qkv.Columns(q_dim, q_dim + kv);
  const int cp = options_.layout.cp;
  if (cp == 1) return own;
  const int64_t tokens = batch.batch * batch.time;
  const Tensor packed = b_.kv.Rows(0, rows(batch));
  const Tensor ranks = b_.all_kv.Rows(0, tokens);
  const Tensor sequences = b_.sequence_kv.Rows(0, tokens);
  ops_->Copy(own, packed);
  CRIA_RETURN_IF_ERROR(groups_->cp
                           ->AllGather({.input = packed.data(),
                                        .output = ranks.data(),
                                        .count = packed.num_elements(),
                                        .dtype = WireType(packed.dtype())})
                           .Wait());
  FromRankOrder(ops_, cp, batch.batch, batch.time, ranks, sequences);
  return sequences;
}

std::vector<ContextSpan> Stage::Spans(const TokenBatch& batch) const {
  const int cp = options_.layout.cp;
  return SpansOf(cp, cp > 1 ? groups_->at.cp : 0, batch.batch, batch.time);
}

AttentionForwardArgs Stage::AttentionArgs(const LayerState& s, const Tensor& kv,
                                          const TokenBatch& batch, const ContextSpan& span) const {
  const int64_t begin = span.row, end = span.row + batch.batch * span.time;
  const int64_t kv_dim = local_.KvDim();
  return {.q = s.qkv.Columns(0, local_.QDim()).Rows(begin, end),
          .k = kv.Columns(0, kv_dim),
          .v = kv.Columns(kv_dim, 2 * kv_dim),
          .doc_start = batch.doc_start.Rows(begin, end),
          .out = s.attention.Rows(begin, end),
          .lse = s.lse.Rows(begin * local_.heads, end * local_.heads),
          .batch = batch.batch,
          .time = span.time,
          .heads = local_.heads,
          .kv_heads = local_.kv_heads,
          .head_dim = local_.HeadDim(),
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(local_.HeadDim()))),
          .keys = options_.layout.cp == 1 ? 0 : batch.time,
          .first_query = span.first};
}

Status Stage::Attention(const LayerState& s, const TokenBatch& batch) {
  CRIA_ASSIGN_OR_RETURN(const Tensor kv, KeysAndValues(s, batch));
  for (const ContextSpan& span : Spans(batch)) {
    ops_->AttentionForward(AttentionArgs(s, kv, batch, span));
  }
  return OkStatus();
}

Status Stage::AttentionBackward(const LayerState& s, const TokenBatch& batch,
                                const Tensor& dattention, const Tensor& dqkv) {
  const int64_t q_dim = local_.QDim(), kv_dim = local_.KvDim();
  CRIA_ASSIGN_OR_RETURN(const Tensor kv, KeysAndValues(s, batch));
  const Tensor own = dqkv.Columns(q_dim, q_dim + 2 * kv_dim);
  // The operation adds up what it may; over ranks or grains we do.
  const Tensor sequences = b_.dkv.defined() ? b_.dkv.Rows(0, batch.batch * batch.time) : own;
  if (options_.invariant()) ops_->Zero(sequences);
  bool accumulate = false;
  for (const ContextSpan& span : Spans(batch)) {
    const int64_t begin = span.row, end = span.row + batch.batch * span.time;
    const AttentionBackwardArgs args = {.forward = AttentionArgs(s, kv, batch, span),
                                        .dout = dattention.Rows(begin, end),
                                        .dq = dqkv.Columns(0, q_dim).Rows(begin, end),
                                        .dk = sequences.Columns(0, kv_dim),
                                        .dv = sequences.Columns(kv_dim, 2 * kv_dim),
                                        .accumulate = accumulate};
    if (options_.invariant()) {
      grains_.AttentionBackward(args);
    } else {
      ops_->AttentionBackward(args);
    }
    accumulate = true;
  }
  NoteFinite("gradients of keys and values");
  return b_.dkv.defined() ? SumKeyGradients(batch, sequences, own) : OkStatus();
}

Status Stage::SumKeyGradients(const TokenBatch& batch, const Tensor& sequences, const Tensor& own) {
  const int cp = options_.layout.cp;
  Tensor summed = sequences;
  if (cp > 1) {
    const Tensor ranks = b_.all_dkv.Rows(0, batch.batch * batch.time);
    summed = b_.own_dkv.Rows(0, rows(batch));
    ToRankOrder(ops_, cp, batch.batch, batch.time, sequences, ranks);
    CRIA_RETURN_IF_ERROR(groups_->cp
                             ->ReduceScatter({.input = ranks.data(),
                                              .output = summed.data(),
                                              .count = summed.num_elements(),
                                              .dtype = WireType(summed.dtype())})
                             .Wait());
  }
  // Ranks that share a kv head have each its own queries' part. Products take the sum, which is
  // rounded once as on one rank, and take it on the first of them alone.
  const ModelSlice& slice = parameters_.slice();
  if (slice.kv_replicas > 1) {
    CRIA_RETURN_IF_ERROR(groups_->kv
                             ->AllReduce({.input = summed.data(),
                                          .output = summed.data(),
                                          .count = summed.num_elements(),
                                          .dtype = WireType(summed.dtype())})
                             .Wait());
    if (slice.kv_replica > 0) ops_->Zero(summed);
  }
  if (options_.invariant()) {
    ops_->FixedToFloat({.from = summed, .to = own, .log2_scale = kFlowingGradientLog2Scale});
  } else {
    ops_->Copy(summed, own);
  }
  return OkStatus();
}

// ---- backward ----

Tensor Stage::GradientCopy(const TokenBatch& batch) const {
  const bool low = ComputeType(options_.precision) != DType::kF32;
  return low ? split_.Own(b_.dy.Rows(0, rows(batch))) : Tensor();
}

StatusOr<Tensor> Stage::GatheredGradient(const Tensor& dx, const TokenBatch& batch) {
  if (!b_.dy.defined()) return dx;  // fp32 on one rank
  const Tensor dy = b_.dy.Rows(0, rows(batch));
  if (dy.dtype() == DType::kF32) ops_->Copy(dx, split_.Own(dy));
  return split_.Gather(dy);
}

Status Stage::Backward(const StageStep& step) {
  CRIA_CHECK(options_.training, "this model was made without gradients");
  const Tensor dx = Boundary(step.slot, step.batch);
  const Tensor low = GradientCopy(step.batch);
  if (low.defined()) ops_->Copy(dx, low);
  const LayerRange layers = LayersOfChunk(step.chunk);
  for (int64_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    CRIA_RETURN_IF_ERROR(BackwardLayer(layer, layer > layers.begin ? layer - 1 : -1, step));
  }
  if (first(step.chunk)) CRIA_RETURN_IF_ERROR(EmbedBackward(step));
  return step.chunk == 0 ? store_->GradientsAdded(parameters_.norms_block(), step.last)
                         : OkStatus();
}

Status Stage::EmbedBackward(const StageStep& step) {
  Tensor dout = Boundary(step.slot, step.batch);
  if (b_.embedded.defined()) {
    const Tensor all = b_.embedded.Rows(0, rows(step.batch)).Placed(Placement::kShard0);
    ops_->Copy(dout, split_.Own(all));
    CRIA_ASSIGN_OR_RETURN(dout, split_.Gather(all));
  }
  const int block = parameters_.embedding_block();
  const Range vocab = parameters_.slice().vocab;
  CRIA_ASSIGN_OR_RETURN(const Tensor gradient, store_->Gradients(block));
  const bool fits = ops_->EmbeddingBackward(
      {.tokens = step.batch.tokens,
       .dout = dout,
       .dtable = gradient.View({vocab.size(), config_.dim}).Placed(Placement::kShard0),
       .first_token = vocab.begin,
       .log2_scale = kGradientLog2Scale});
  if (!fits) linears_.NoteNonFinite("gradient of the embedding");
  return store_->GradientsAdded(block, step.last);
}

Status Stage::BackwardLayer(int64_t layer, int64_t prefetch, const StageStep& step) {
  const debug::TraceSpan span(options_.trace, "layer backward",
                              {{"layer", LayerOfModel(step.chunk, layer)}});
  const LayerState s = State(layer, step);
  CRIA_ASSIGN_OR_RETURN(const LayerWeights w, WeightsOf(layer, prefetch));
  if (options_.recompute == Recompute::kFull) {
    ops_->RmsNormForward(AttentionNorm(w, s));
    CRIA_RETURN_IF_ERROR(RunLayer(layer, w, s, step.batch, /*record=*/false));
  }
  const int block = parameters_.layer_block(layer);
  CRIA_ASSIGN_OR_RETURN(const Tensor gradients, store_->Gradients(block));
  CRIA_RETURN_IF_ERROR(BackwardMlp(layer, w, s, gradients, step));
  CRIA_RETURN_IF_ERROR(BackwardAttention(layer, w, s, gradients, step));
  return store_->GradientsAdded(block, step.last);
}

RmsNormForwardArgs Stage::AttentionNorm(const LayerWeights& w, const LayerState& s) const {
  return {.x = s.x,
          .weight = NormWeight(w.at.attention_norm),
          .y = split_.Own(s.normed_attention),
          .rstd = s.rstd_attention,
          .eps = static_cast<float>(config_.norm_eps)};
}

RmsNormForwardArgs Stage::FfnNorm(const LayerWeights& w, const LayerState& s) const {
  return {.x = s.mid,
          .weight = NormWeight(w.at.ffn_norm),
          .y = split_.Own(s.normed_ffn),
          .rstd = s.rstd_ffn,
          .eps = static_cast<float>(config_.norm_eps)};
}

StatusOr<Tensor> Stage::NormAgain(const RmsNormForwardArgs& norm, const Tensor& normed) {
  const bool kept = options_.recompute == Recompute::kFull ||
                    (options_.recompute == Recompute::kNone && split_.size() == 1);
  if (kept) return normed.Placed(Placement::kReplicate);
  ops_->RmsNormForward(norm);
  return split_.Gather(normed);
}

Status Stage::NormBackward(const RmsNormForwardArgs& norm, int64_t offset, const StageStep& step) {
  const Tensor dnormed = b_.dnormed.Rows(0, own_rows(step.batch));
  if (options_.invariant()) {
    const Tensor sums = b_.sums.Rows(0, rows(step.batch));
    NoteFinite("gradients of activations");
    CRIA_ASSIGN_OR_RETURN(const Tensor own_sums, split_.SumInPlace(sums));
    ops_->FixedToFloat({.from = own_sums, .to = dnormed, .log2_scale = kFlowingGradientLog2Scale});
  } else {
    CRIA_RETURN_IF_ERROR(SumRows(b_.dnormed_partial.Rows(0, rows(step.batch)), dnormed));
  }
  CRIA_ASSIGN_OR_RETURN(const Tensor dweight, NormGradient(offset));
  const RmsNormBackwardArgs args = {.dy = dnormed,
                                    .x = norm.x,
                                    .weight = norm.weight,
                                    .rstd = norm.rstd,
                                    .dx = Boundary(step.slot, step.batch),
                                    .dx_copy = GradientCopy(step.batch),
                                    .dweight = dweight};
  if (options_.invariant()) {
    grains_.NormBackward(args);
    NoteFinite("gradient of a norm");
  } else {
    ops_->RmsNormBackward(args);
  }
  return OkStatus();
}

// ---- products of the backward pass ----

Status Stage::InputGradient(const LinearBackwardArgs& args) {
  if (!options_.invariant()) return linears_.BackwardInput(args);
  ops_->Matmul({.a = args.dy, .b = args.w, .c = args.dx, .chain = true});
  return OkStatus();
}

Status Stage::PartialInputGradient(const LinearBackwardArgs& args, std::span<const Range> grains) {
  if (!options_.invariant()) return linears_.BackwardInput(args);
  const Tensor sums = b_.sums.Rows(0, args.dy.dim(0));
  ops_->Zero(sums);
  for (const Range& grain : grains) {
    grains_.AddInputGradient(args.dy.Columns(grain.begin, grain.end),
                             args.w.Rows(grain.begin, grain.end), sums);
  }
  return OkStatus();
}

Status Stage::WeightGradient(const LinearBackwardArgs& args) {
  if (!options_.invariant()) return linears_.BackwardWeight(args);
  grains_.AddWeightGradient(args.dy, args.x, args.dw);
  NoteFinite("gradient of a weight");
  return OkStatus();
}

// By heads.
std::vector<Range> Stage::QkvGrains() const {
  const int64_t width = local_.HeadDim();
  const int64_t num = local_.heads + 2 * local_.kv_heads;
  std::vector<Range> grains;
  for (int64_t i = 0; i < num; ++i) grains.push_back({i * width, (i + 1) * width});
  return grains;
}

// Gate and up of as many shares of the channels as there are heads.
std::vector<Range> Stage::GateUpGrains() const {
  const int64_t width = local_.ffn / local_.heads;
  std::vector<Range> grains;
  for (int64_t i = 0; i < 2 * local_.heads; ++i) grains.push_back({i * width, (i + 1) * width});
  return grains;
}

Status Stage::BackwardMlp(int64_t layer, const LayerWeights& w, const LayerState& s,
                          const Tensor& gradients, const StageStep& step) {
  const int64_t all = rows(step.batch);
  CRIA_ASSIGN_OR_RETURN(const Tensor dy,
                        GatheredGradient(Boundary(step.slot, step.batch), step.batch));
  const RmsNormForwardArgs norm = FfnNorm(w, s);
  CRIA_ASSIGN_OR_RETURN(const Tensor normed, NormAgain(norm, s.normed_ffn));
  const LinearBackwardArgs down = {.id = LinearId(layer, kDown),
                                   .dy = dy,
                                   .x = s.act,
                                   .w = MatrixOf(kDown, local_, w.at, w.block),
                                   .dx = b_.dact.Rows(0, all),
                                   .dw = MatrixOf(kDown, local_, w.at, gradients),
                                   .w_factor = w.factor(kDown)};
  CRIA_RETURN_IF_ERROR(InputGradient(down));
  const bool act_again = options_.recompute == Recompute::kSelective;
  ops_->SwigluBackward({.gate_up = s.gate_up,
                        .dact = down.dx,
                        .dgate_up = s.gate_up,
                        .act = act_again ? s.act : Tensor()});
  CRIA_RETURN_IF_ERROR(WeightGradient(down));
  const LinearBackwardArgs gate_up = {.id = LinearId(layer, kGateUp),
                                      .dy = s.gate_up,
                                      .x = normed,
                                      .w = MatrixOf(kGateUp, local_, w.at, w.block),
                                      .dx = b_.dnormed_partial.Rows(0, all),
                                      .dw = MatrixOf(kGateUp, local_, w.at, gradients),
                                      .w_factor = w.factor(kGateUp)};
  CRIA_RETURN_IF_ERROR(PartialInputGradient(gate_up, GateUpGrains()));
  CRIA_RETURN_IF_ERROR(WeightGradient(gate_up));
  return NormBackward(norm, w.at.ffn_norm, step);
}

Status Stage::BackwardAttention(int64_t layer, const LayerWeights& w, const LayerState& s,
                                const Tensor& gradients, const StageStep& step) {
  const int64_t all = rows(step.batch);
  const int64_t q_dim = local_.QDim(), kv_dim = local_.KvDim();
  CRIA_ASSIGN_OR_RETURN(const Tensor dy,
                        GatheredGradient(Boundary(step.slot, step.batch), step.batch));
  const RmsNormForwardArgs norm = AttentionNorm(w, s);
  CRIA_ASSIGN_OR_RETURN(const Tensor normed, NormAgain(norm, s.normed_attention));
  const LinearBackwardArgs out = {.id = LinearId(layer, kOut),
                                  .dy = dy,
                                  .x = s.attention,
                                  .w = MatrixOf(kOut, local_, w.at, w.block),
                                  .dx = b_.dattention.Rows(0, all),
                                  .dw = MatrixOf(kOut, local_, w.at, gradients),
                                  .w_factor = w.factor(kOut)};
  CRIA_RETURN_IF_ERROR(InputGradient(out));
  CRIA_RETURN_IF_ERROR(WeightGradient(out));
  const Tensor dqkv = b_.dqkv.Rows(0, all);
  CRIA_RETURN_IF_ERROR(AttentionBackward(s, step.batch, out.dx, dqkv));
  ops_->Rope({.x = dqkv.Columns(0, q_dim + kv_dim),
              .positions = step.batch.positions,
              .cosines = b_.cosines,
              .sines = b_.sines,
              .head_dim = local_.HeadDim(),
              .inverse = true});
  const LinearBackwardArgs qkv = {.id = LinearId(layer, kQkv),
                                  .dy = dqkv,
                                  .x = normed,
                                  .w = MatrixOf(kQkv, local_, w.at, w.block),
                                  .dx = b_.dnormed_partial.Rows(0, all),
                                  .dw = MatrixOf(kQkv, local_, w.at, gradients),
                                  .w_factor = w.factor(kQkv)};
  CRIA_RETURN_IF_ERROR(PartialInputGradient(qkv, QkvGrains()));
  CRIA_RETURN_IF_ERROR(WeightGradient(qkv));
  return NormBackward(norm, w.at.attention_norm, step);
}

}  // namespace cria::model

#include "model/llama/stage_buffers.h"

#include <algorithm>

#include "base/str.h"
#include "model/placement.h"

namespace cria::model {
namespace {

// The four GEMM groups of a layer, as Linears counts them (stage.cc has the enum).
struct LayerKind {
  const char* name;
  WeightSplit split;
};
constexpr LayerKind kLayerKinds[] = {{"qkv", WeightSplit::kRows},
                                     {"out", WeightSplit::kColumns},
                                     {"gate_up", WeightSplit::kRows},
                                     {"down", WeightSplit::kColumns}};

// Rows of a tile of the head: its logits stay within about 8 MiB, near the cache.
int64_t HeadTileRows(int64_t vocab, int64_t max_rows, int64_t grain) {
  constexpr int64_t kTileBytes = 8 << 20;
  const int64_t rows =
      std::clamp<int64_t>(kTileBytes / (4 * std::max<int64_t>(vocab, 1)), 16, 256) / 16 * 16;
  if (grain > 0) return std::min(max_rows, (rows + grain - 1) / grain * grain);
  return std::min(rows, max_rows);
}

// Sizes of one rank's tensors.
struct Sizes {
  Sizes(const LlamaConfig& config, const StageOptions& options, const ParameterLayout& parameters)
      : local(LocalConfig(config, parameters.slice())),
        type(ComputeType(options.precision)),
        tokens(options.max_batch * options.max_time),
        rows(tokens / options.layout.cp),
        own_rows(rows / options.layout.tp),
        qkv_dim(local.QDim() + 2 * local.KvDim()),
        vocab(parameters.slice().vocab.size()) {}

  LlamaConfig local;
  DType type;
  int64_t tokens, rows, own_rows, qkv_dim, vocab;
};

// Roles over the ranks of tensor parallelism. Rows of the residual stream are divided; so are,
// until they are gathered, those of what comes from it.
constexpr Placement kOwnRows = Placement::kShard0;
constexpr Placement kOwnColumns = Placement::kShard1;  // heads, channels, words
constexpr Placement kPartial = Placement::kPartial;

// Which of a layer's tensors have a copy for each layer and slot; the others share one.
struct Kept {
  bool x, most, normed, act;
};

class LayerAllocator {
 public:
  LayerAllocator(const Sizes& sizes, const Kept& kept, Arena* arena)
      : sizes_(sizes), kept_(kept), arena_(arena) {}

  LayerState Next() {
    const Sizes& z = sizes_;
    const bool first = !made_;
    made_ = true;
    LayerState s = shared_;
    if (kept_.x || first) {
      s.x = arena_->Alloc(DType::kF32, {z.own_rows, z.local.dim}).Placed(kOwnRows);
    }
    if (kept_.most || first) {
      s.mid = arena_->Alloc(DType::kF32, {z.own_rows, z.local.dim}).Placed(kOwnRows);
      s.rstd_attention = arena_->Alloc(DType::kF32, {z.own_rows}).Placed(kOwnRows);
      s.rstd_ffn = arena_->Alloc(DType::kF32, {z.own_rows}).Placed(kOwnRows);
      s.qkv = arena_->Alloc(z.type, {z.rows, z.qkv_dim}).Placed(kOwnColumns);
      s.attention = arena_->Alloc(z.type, {z.rows, z.local.QDim()}).Placed(kOwnColumns);
      s.lse = arena_->Alloc(DType::kF32, {z.rows * z.local.heads});
      s.gate_up = arena_->Alloc(z.type, {z.rows, 2 * z.local.ffn}).Placed(kOwnColumns);
    }
    if (kept_.normed || first) {
      s.normed_attention = arena_->Alloc(z.type, {z.rows, z.local.dim}).Placed(kOwnRows);
      s.normed_ffn = arena_->Alloc(z.type, {z.rows, z.local.dim}).Placed(kOwnRows);
    }
    if (kept_.act || first) {
      s.act = arena_->Alloc(z.type, {z.rows, z.local.ffn}).Placed(kOwnColumns);
    }
    if (first) shared_ = s;
    return s;
  }

 private:
  const Sizes& sizes_;
  const Kept kept_;
  Arena* const arena_;
  bool made_ = false;
  LayerState shared_;
};

void AllocateHead(const Sizes& z, const StageOptions& options, Arena* arena, StageBuffers* b) {
  b->final_x = arena->Alloc(DType::kF32, {z.own_rows, z.local.dim}).Placed(kOwnRows);
  b->final_rstd = arena->Alloc(DType::kF32, {z.own_rows}).Placed(kOwnRows);
  b->final_normed = arena->Alloc(z.type, {z.rows, z.local.dim}).Placed(kOwnRows);
  const int64_t tile_rows = HeadTileRows(z.vocab, z.rows, options.token_grain);
  b->logits = arena->Alloc(DType::kF32, {tile_rows, z.vocab}).Placed(kOwnColumns);
  b->losses = arena->Alloc(DType::kF32, {z.rows});
  if (options.training && z.type != DType::kF32) {
    b->low_logits = arena->Alloc(z.type, {tile_rows, z.vocab}).Placed(kOwnColumns);
  }
  const int64_t parts = options.invariant() ? z.local.heads : 1;
  if (options.layout.tp == 1 && !options.invariant()) return;
  b->stats = arena->Alloc(DType::kF32, {parts, 3, tile_rows}).Placed(kPartial);
  b->all_stats = arena->Alloc(DType::kF32, {options.layout.tp * parts, 3, tile_rows});
  b->lse = arena->Alloc(DType::kF32, {tile_rows});
}

void AllocateContext(const Sizes& z, Arena* arena, StageBuffers* b) {
  const int64_t kv = 2 * z.local.KvDim();
  b->kv = arena->Alloc(z.type, {z.rows, kv}).Placed(kOwnColumns);
  b->all_kv = arena->Alloc(z.type, {z.tokens, kv}).Placed(kOwnColumns);
  b->sequence_kv = arena->Alloc(z.type, {z.tokens, kv}).Placed(kOwnColumns);
}

// Gradients of keys and values where they are summed outside of the attention's operation.
void AllocateKeyGradients(const Sizes& z, const StageOptions& options, Arena* arena,
                          StageBuffers* b) {
  const int64_t kv = 2 * z.local.KvDim();
  const DType type = options.invariant() ? DType::kI64 : DType::kF32;
  b->dkv = arena->Alloc(type, {z.tokens, kv}).Placed(kOwnColumns);
  if (options.layout.cp == 1) return;
  b->all_dkv = arena->Alloc(type, {z.tokens, kv}).Placed(kOwnColumns);
  b->own_dkv = arena->Alloc(type, {z.rows, kv}).Placed(kOwnColumns);
}

void AllocateGrains(const Sizes& z, const StageOptions& options, Arena* arena, StageBuffers* b) {
  b->sums = arena->Alloc(DType::kI64, {z.rows, z.local.dim}).Placed(kPartial);
  const int64_t outputs = std::max({z.qkv_dim, 2 * z.local.ffn, z.vocab, z.rows});
  b->product = arena->Alloc(
      DType::kF32, {std::max(outputs * z.local.dim, 2 * options.max_time * z.local.HeadDim())});
}

void AllocateBackward(const Sizes& z, Arena* arena, StageBuffers* b) {
  b->dattention = arena->Alloc(z.type, {z.rows, z.local.QDim()}).Placed(kOwnColumns);
  b->dqkv = arena->Alloc(z.type, {z.rows, z.qkv_dim}).Placed(kOwnColumns);
  b->dact = arena->Alloc(z.type, {z.rows, z.local.ffn}).Placed(kOwnColumns);
}

}  // namespace

StageBuffers StageBuffers::Allocate(const LlamaConfig& config, const StageOptions& options,
                                    const ParameterLayout& parameters, Arena* arena) {
  const Sizes z(config, options, parameters);
  const ModelSlice& slice = parameters.slice();
  const bool split = options.layout.tp > 1;
  const bool low = z.type != DType::kF32;
  const Recompute recompute = options.training ? options.recompute : Recompute::kFull;

  StageBuffers b;
  LayerAllocator layers(z,
                        {.x = options.training || options.layout.pp > 1,
                         .most = recompute != Recompute::kFull,
                         .normed = recompute == Recompute::kNone && !split,
                         .act = recompute == Recompute::kNone},
                        arena);
  int64_t layers_of_slot = 1;
  for (const LayerRange& chunk : slice.chunks) {
    layers_of_slot = std::max(layers_of_slot, chunk.size());
  }
  const int slots = options.slots > 0 ? options.slots : static_cast<int>(slice.chunks.size());
  for (int slot = 0; slot < slots; ++slot) {
    b.layers.emplace_back();
    for (int64_t i = 0; i < layers_of_slot; ++i) b.layers.back().push_back(layers.Next());
    // Evaluation on one rank has no neighbour and no gradient.
    const bool used = options.training || options.layout.pp > 1;
    b.boundaries.push_back(
        used ? arena->Alloc(DType::kF32, {z.own_rows, z.local.dim}).Placed(kOwnRows) : Tensor());
  }
  b.cosines = arena->Alloc(DType::kF32, {options.max_time, z.local.HeadDim() / 2});
  b.sines = arena->Alloc(DType::kF32, {options.max_time, z.local.HeadDim() / 2});
  b.delta = arena->Alloc(z.type, {z.own_rows, z.local.dim}).Placed(kOwnRows);
  if (options.training) {
    b.dnormed = arena->Alloc(z.type, {z.own_rows, z.local.dim}).Placed(kOwnRows);
  }
  if (split) {
    // fp32: rounded once, when the sum is whole.
    b.delta_partial = arena->Alloc(DType::kF32, {z.rows, z.local.dim}).Placed(kPartial);
    b.dnormed_partial = b.delta_partial;  // never both at once
  } else {
    b.delta_partial = b.delta;
    b.dnormed_partial = b.dnormed;
  }
  if (options.training && (split || low)) {
    b.dy = arena->Alloc(z.type, {z.rows, z.local.dim}).Placed(kOwnRows);
  }
  if (split && slice.embedding) {
    b.embedded = arena->Alloc(DType::kF32, {z.rows, z.local.dim}).Placed(kPartial);
  }
  if (slice.head) AllocateHead(z, options, arena, &b);
  if (options.layout.cp > 1) AllocateContext(z, arena, &b);
  if (options.training) AllocateBackward(z, arena, &b);
  const bool sums_kv = options.layout.cp > 1 || slice.kv_replicas > 1 || options.invariant();
  if (options.training && sums_kv) AllocateKeyGradients(z, options, arena, &b);
  if (options.invariant()) AllocateGrains(z, options, arena, &b);
  return b;
}

Linears AllocateLinears(const LlamaConfig& config, const StageOptions& options,
                        const ParameterLayout& parameters, Ops* ops, Arena* arena) {
  const Sizes z(config, options, parameters);
  std::vector<Linears::Layer> layers;
  for (const LayerRange& chunk : parameters.slice().chunks) {
    for (int64_t i = chunk.begin; i < chunk.end; ++i) {
      for (const LayerKind& kind : kLayerKinds) {
        layers.push_back({StrCat("model.layers.", i, ".", kind.name), kind.split});
      }
    }
  }
  const int64_t widest = std::max({z.qkv_dim, 2 * z.local.ffn, z.local.dim, z.local.QDim()});
  // Of [qkv, dim], [dim, q], [2 ffn, dim] and [dim, ffn] the largest.
  const int64_t largest_weight = z.local.dim * std::max(z.qkv_dim, 2 * z.local.ffn);
  return Linears(ops, options.precision, layers, z.rows * widest, largest_weight,
                 std::max(z.rows, widest), arena);
}

StepShape ShapeOf(const LlamaConfig& config, const StageOptions& options,
                  const ParameterLayout& parameters) {
  const Sizes z(config, options, parameters);
  const Layout& layout = options.layout;
  // Gathered weights are not there from one use to the next: the backend keeps no form of them.
  const bool keeps_weights = layout.shard != Shard::kWeights || layout.replicas() == 1;
  // In FP8 only the head's product reads a weight as it is.
  const bool kept_layers = keeps_weights && !IsFp8(options.precision);
  const int64_t stretch = options.max_time / (layout.cp == 1 ? 1 : 2 * layout.cp);
  return {.batch = options.max_batch,
          .time = options.max_time / layout.cp,
          .dim = z.local.dim,
          .heads = z.local.heads,
          .kv_heads = z.local.kv_heads,
          .head_dim = z.local.HeadDim(),
          .ffn = z.local.ffn,
          .vocab = z.vocab,
          .kept_layers = kept_layers ? parameters.slice().num_layers() : 0,
          .kept_head = keeps_weights && parameters.slice().head,
          .head_rows = HeadTileRows(z.vocab, z.rows, options.token_grain),
          .attention_time = options.invariant() ? options.token_grain : stretch,
          .bf16 = z.type == DType::kBF16,
          .training = options.training,
          .chain = options.invariant()};
}

}  // namespace cria::model

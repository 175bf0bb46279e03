// The memory of a stage: what its layers keep for the backward pass, by micro-batch in flight, and
// what they share.
//
//   StageBuffers buffers = StageBuffers::Allocate(config, options, parameters, &arena);
//
// The same code with a planning arena gives the plan. Thread-compatible.

#ifndef CRIA_MODEL_LLAMA_STAGE_BUFFERS_H_
#define CRIA_MODEL_LLAMA_STAGE_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "debug/trace.h"
#include "model/arena.h"
#include "model/llama/config.h"
#include "model/llama/linear.h"
#include "model/llama/parameters.h"
#include "model/ops.h"
#include "model/parallel/mesh.h"
#include "model/precision.h"

namespace cria::model {

enum class Recompute { kNone, kSelective, kFull };

struct StageOptions {
  Layout layout = {};
  int rank = 0;
  Precision precision = Precision::kFp32;
  Recompute recompute = Recompute::kNone;
  int64_t max_batch = 1;   // sequences of a micro-batch
  int64_t max_time = 256;  // tokens of a sequence
  bool training = true;    // false: no backward, one layer's activations for all
  float z_loss = 0;
  int slots = 0;            // micro-batches that all chunks together have in flight; 0: one each
  bool fp8_gather = false;  // sharded weights of layers travel as 8-bit codes
  // Over 0: invariant numerics, with this many tokens a grain (grain_sums.h). fp32 only.
  int64_t token_grain = 0;
  debug::Trace* trace = nullptr;  // gets micro-batches and layers; may be null

  bool invariant() const { return token_grain > 0; }
};

struct StageMemory {
  int64_t activations = 0;  // by micro-batch in flight, and shared
  int64_t workspace = 0;    // the backend's scratch
};

// Activations of one layer and one micro-batch that its backward pass reads. R rows of the batch, r
// of them this rank's part of the residual stream.
struct LayerState {
  Tensor x, mid;                        // [r, D] residual before attention and before the MLP, fp32
  Tensor rstd_attention, rstd_ffn;      // [r]
  Tensor normed_attention, normed_ffn;  // [R, D] GEMM inputs
  Tensor qkv, attention, lse;           // [R, ...] of this rank's heads
  Tensor gate_up, act;                  // [R, ...] of this rank's channels
};

struct StageBuffers {
  // By slot, then layer of the chunk that is in it: chunks take turns in the same memory. At least
  // one layer, whose x is the chunk's input.
  std::vector<std::vector<LayerState>> layers;
  std::vector<Tensor> boundaries;  // by slot: fp32 [r, D]
  Tensor cosines, sines;
  Tensor delta;                           // [r, D] what a layer adds to the residual
  Tensor dnormed;                         // [r, D] gradient of a norm's output
  Tensor delta_partial, dnormed_partial;  // [R, D] before their sum over tp; tp 1: the same memory
  Tensor dy;                              // [R, D] gradient of the residual as a GEMM operand
  Tensor embedded;                        // [R, D] fp32, where the vocabulary is split
  Tensor final_x, final_rstd;             // [r, D], [r]
  Tensor final_normed;                    // [R, D]
  Tensor logits, low_logits, losses;      // of one tile of the head
  Tensor stats, all_stats;                // [parts, 3, tile] of its softmax: this rank's, all
  Tensor lse;                             // [tile]
  Tensor dattention, dqkv, dact;          // [R, ...]
  Tensor kv, all_kv, sequence_kv;         // [R, 2 KV], [cp, R, 2 KV], [B * T, 2 KV] where cp > 1
  Tensor dkv, all_dkv, own_dkv;           // their gradients in the reverse order, fp32 or i64
  Tensor sums, product;                   // invariant numerics: [R, D] i64; a grain's product

  static StageBuffers Allocate(const LlamaConfig& config, const StageOptions& options,
                               const ParameterLayout& parameters, Arena* arena);
};

// Scratch and state of the stage's linear layers.
Linears AllocateLinears(const LlamaConfig& config, const StageOptions& options,
                        const ParameterLayout& parameters, Ops* ops, Arena* arena);

// For Ops::WorkspaceBytes.
StepShape ShapeOf(const LlamaConfig& config, const StageOptions& options,
                  const ParameterLayout& parameters);

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_STAGE_BUFFERS_H_

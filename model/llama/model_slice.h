// The part of a model that one rank holds: a run of layers for each chunk, and of each layer a
// share of the heads, of the feed-forward channels and of the vocabulary.
//
//   const ModelSlice whole = WholeModel(config);
//   const ModelSlice mine = SliceOf(layout, config, rank);
//   ParameterLayout parameters(config, mine);
//
// Thread-safe: values.

#ifndef CRIA_MODEL_LLAMA_MODEL_SLICE_H_
#define CRIA_MODEL_LLAMA_MODEL_SLICE_H_

#include <cstdint>
#include <vector>

#include "model/llama/config.h"
#include "model/parallel/mesh.h"

namespace cria::model {

struct ModelSlice {
  // Of each chunk, in the order in which a token meets them; other ranks' chunks lie between.
  std::vector<LayerRange> chunks;
  bool embedding = true;  // the first chunk starts from tokens
  bool head = true;       // the last chunk ends in the loss
  int tp = 1, tp_rank = 0;
  Range heads, kv_heads, ffn, vocab;  // of the model's, by index
  int kv_replicas = 1;                // tp ranks that hold the same kv heads
  int kv_replica = 0;                 // which of them this is
  // Embedding and head are one matrix held by two stages: this is the one of the head.
  bool tied_copy = false;

  int64_t num_layers() const;
};

ModelSlice WholeModel(const LlamaConfig& config);
ModelSlice SliceOf(const Layout& layout, const LlamaConfig& config, int rank);

// The sizes that a rank's tensors have: as `config`, with the slice's heads, kv heads and channels,
// and head_dim written out. layers is the slice's count; vocab stays the model's.
LlamaConfig LocalConfig(const LlamaConfig& config, const ModelSlice& slice);

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_MODEL_SLICE_H_

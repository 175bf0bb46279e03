#include "model/llama/model_slice.h"

namespace cria::model {

int64_t ModelSlice::num_layers() const {
  int64_t n = 0;
  for (const LayerRange& chunk : chunks) n += chunk.end - chunk.begin;
  return n;
}

namespace {

// As many shares of the vocabulary as there are heads, as many of them as the rank has heads: a
// share is one rank's in every layout.
Range VocabOf(const LlamaConfig& config, const Range& heads) {
  const auto part = [&](int64_t head) {
    return PartOf(config.vocab, static_cast<int>(config.heads), static_cast<int>(head));
  };
  return {part(heads.begin).begin, part(heads.end - 1).end};
}

}  // namespace

ModelSlice WholeModel(const LlamaConfig& config) { return SliceOf(Layout{}, config, 0); }

ModelSlice SliceOf(const Layout& layout, const LlamaConfig& config, int rank) {
  const Coordinates at = CoordinatesOf(layout, rank);
  ModelSlice slice;
  slice.chunks = LayersOf(layout, config.layers, at.pp);
  slice.embedding = at.pp == 0;
  slice.head = at.pp == layout.pp - 1;
  slice.tp = layout.tp;
  slice.tp_rank = at.tp;
  slice.heads = PartOf(config.heads, layout.tp, at.tp);
  slice.kv_heads = KvHeadsOf(config, layout, at.tp);
  slice.ffn = PartOf(config.ffn, layout.tp, at.tp);
  slice.vocab = VocabOf(config, slice.heads);
  slice.kv_replicas = KvReplicas(config, layout);
  slice.kv_replica = at.tp % slice.kv_replicas;
  slice.tied_copy = config.tied_head && slice.head && !slice.embedding;
  return slice;
}

LlamaConfig LocalConfig(const LlamaConfig& config, const ModelSlice& slice) {
  LlamaConfig local = config;
  local.head_dim = config.HeadDim();
  local.layers = slice.num_layers();
  local.heads = slice.heads.size();
  local.kv_heads = slice.kv_heads.size();
  local.ffn = slice.ffn.size();
  return local;
}

}  // namespace cria::model

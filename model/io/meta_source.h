// Meta's checkpoints as a WeightSource: consolidated.00.pth, .01.pth, ... (one of tensor
// parallelism's ranks each), or consolidated.safetensors.
//
//   CRIA_ASSIGN_OR_RETURN(const auto source, MetaSource::Open("Llama3.1-8B", params.config));
//   source->weights()       // Hugging Face's names, shapes and row order
//
//   Meta                        Hugging Face                    shards are joined along
//   tok_embeddings              model.embed_tokens              rows (Llama 3), columns (before)
//   layers.i.attention.wq wk    self_attn.q_proj k_proj         rows, then to halves (qk_order.h)
//   layers.i.attention.wv       self_attn.v_proj                rows
//   layers.i.attention.wo       self_attn.o_proj                columns
//   layers.i.feed_forward.w1 w3 mlp.gate_proj up_proj           rows
//   layers.i.feed_forward.w2    mlp.down_proj                   columns
//   attention_norm, ffn_norm, norm    input_layernorm, ...      the same in all shards (compared)
//   output                      lm_head                         rows
//
// Which way the embedding is cut is told by its shape. rope.freqs is left out: it follows from the
// config. A head that equals the embedding bit for bit (Llama 3.2 1B and 3B) is left out as well,
// and head_is_tied() says so; so does a missing one.
// Files are mapped; a row is put together when it is asked for. Hostile files: see torch_file.h.
// Thread-safe after Open.

#ifndef CRIA_MODEL_IO_META_SOURCE_H_
#define CRIA_MODEL_IO_META_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/io/safetensors.h"
#include "model/io/torch_file.h"
#include "model/io/weight_source.h"
#include "model/llama/config.h"

namespace cria::model {

class MetaSource : public WeightSource {
 public:
  // Of the config, dim and HeadDim() are used. NotFound when the folder has no checkpoint;
  // InvalidArgument, DataLoss: a shard that is missing among them, a weight that not all shards
  // have, that has another type or shape than in the others, that we don't know.
  static StatusOr<std::unique_ptr<MetaSource>> Open(const std::string& dir,
                                                    const LlamaConfig& config);

  const std::string& path() const override { return path_; }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  Status ReadRows(const WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                  void* to) const override;

  bool head_is_tied() const { return head_is_tied_; }

 private:
  enum class Join { kRows, kColumns, kSame };
  struct Plan {
    std::vector<const StridedTensor*> parts;  // by shard; one for kSame
    Join join = Join::kRows;
    int64_t head_dim = 0;  // not 0: rows are in Meta's order of rotary pairs
  };
  // A weight's name and how it is joined; an empty name for what is left out.
  struct Rule;

  explicit MetaSource(const std::string& path) : path_(path) {}
  Status OpenFiles();
  Status CheckSameNames() const;
  Status AddWeights(const LlamaConfig& config);
  static StatusOr<Plan> PlanOf(const Rule& rule, std::vector<const StridedTensor*> parts,
                               const LlamaConfig& config, const std::string& path,
                               WeightInfo* info);
  Status CompareHead();

  const std::string path_;
  std::vector<TorchFile> torch_files_;
  std::vector<SafetensorsFile> safetensors_files_;
  std::vector<std::vector<StridedTensor>> shards_;  // sorted by name
  std::vector<WeightInfo> weights_;
  std::vector<Plan> plans_;  // of weights_, one each
  bool head_is_tied_ = false;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_META_SOURCE_H_

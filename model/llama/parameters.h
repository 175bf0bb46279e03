// The parameters of a Llama: names, shapes, initial values, and where they lie in memory.
//
//   ParameterLayout layout(config);
//   for (const Parameter& p : layout.parameters()) { p.name, p.rows, p.columns, p.offset }
//
// Names and logical shapes are Hugging Face's and don't depend on any layout of the machine. A rank
// of a parallel job holds a part of some of them: rows or columns of a matrix (ModelSlice). What it
// holds lies in one buffer, cut into blocks: the embedding, the matrices of each layer, the head
// where it is a matrix of its own, and all norms. q, k, v and gate, up of a layer are neighbours,
// so that one GEMM does the three and one the two. Weights, gradients and both Adam moments are
// four buffers of the same layout. Initial values are a function of (seed, name, element index in
// the logical shape). Thread-safe after construction.

#ifndef CRIA_MODEL_LLAMA_PARAMETERS_H_
#define CRIA_MODEL_LLAMA_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/llama/config.h"
#include "model/llama/model_slice.h"
#include "model/tensor.h"

namespace cria::model {

enum class ParameterKind { kEmbedding, kMatrix, kNorm };

struct Parameter {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  ParameterKind kind;
  int64_t rows, columns;  // columns 0: a vector of `rows`
  int64_t offset;         // elements from the start of the buffer
  bool decay;             // weight decay applies: matrices and embeddings, never norms
  float init_std;         // standard deviation of the initial values; 0: ones
  // The logical tensor, and where this rank's part of it begins. Equal to rows, columns, 0, 0 when
  // the rank holds all of it.
  int64_t full_rows, full_columns;
  int64_t first_row = 0, first_column = 0;
  // Another rank of the stage counts it: norms and shared kv heads are held by several, the tied
  // head's copy by two stages. One rank, the first, saves it and counts it in norms.
  bool counted_elsewhere = false;
  int64_t index = 0;  // in the whole model's order of parameters

  // A rank's part of a matrix may have no columns.
  bool is_vector() const { return kind == ParameterKind::kNorm; }
  int64_t num_elements() const { return is_vector() ? rows : rows * columns; }
  int64_t full_elements() const { return is_vector() ? full_rows : full_rows * full_columns; }
  std::vector<int64_t> shape() const {
    return is_vector() ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, columns};
  }
  std::vector<int64_t> full_shape() const {
    return is_vector() ? std::vector<int64_t>{full_rows}
                       : std::vector<int64_t>{full_rows, full_columns};
  }
};

// A stretch of the buffer that is gathered, reduced and sharded as one.
struct ParameterBlock {
  enum class Kind : uint8_t { kEmbedding, kLayer, kHead, kNorms };
  Kind kind;
  int64_t layer;  // of kLayer: the index among the slice's layers
  int64_t begin, end;

  int64_t size() const { return end - begin; }
};

// Offsets of one layer's parameters: matrices from the start of the layer's block, norms from the
// start of the block of norms.
struct LayerOffsets {
  int64_t attention_norm, qkv, out, ffn_norm, gate_up, down;
};

class ParameterLayout {
 public:
  explicit ParameterLayout(const LlamaConfig& config)
      : ParameterLayout(config, WholeModel(config)) {}
  ParameterLayout(const LlamaConfig& config, const ModelSlice& slice);

  const ModelSlice& slice() const { return slice_; }
  // In the model's order: embedding, layers, final norm, head.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<ParameterBlock>& blocks() const { return blocks_; }
  // Indices of blocks. The head's is the embedding's when tied; -1: not on this rank.
  int embedding_block() const { return embedding_block_; }
  int layer_block(int64_t i) const { return first_layer_block_ + static_cast<int>(i); }
  int head_block() const { return head_block_; }
  int norms_block() const { return static_cast<int>(blocks_.size()) - 1; }
  // Of the slice's layer i.
  const LayerOffsets& layer(int64_t i) const { return layers_[static_cast<size_t>(i)]; }
  int64_t final_norm() const { return final_norm_; }  // in the block of norms
  // Elements of the whole buffer, and of what is in matrices that every token is multiplied with
  // (the embedding's look-up is not; a tied head is).
  int64_t num_elements() const { return num_elements_; }
  int64_t num_matmul_elements() const { return num_matmul_elements_; }
  // Null when there is none of that name.
  const Parameter* Find(std::string_view name) const;

 private:
  struct Placed;
  void Place(std::vector<Placed>* placed);

  ModelSlice slice_;
  std::vector<Parameter> parameters_;
  std::vector<ParameterBlock> blocks_;
  std::vector<LayerOffsets> layers_;
  int embedding_block_ = -1, first_layer_block_ = 0, head_block_ = -1;
  int64_t final_norm_ = 0, num_elements_ = 0, num_matmul_elements_ = 0;
};

// Fills `weights` (fp32, layout.num_elements()) with this rank's part of the initial values: normal
// values with standard deviation 0.02, divided by sqrt(2 layers) for the two matrices that write
// into the residual (GPT-2), ones for norms.
void InitializeParameters(const ParameterLayout& layout, uint64_t seed, const Tensor& weights);
// The same of one parameter: its elements from `first` on, as many as `part` (fp32) has.
void InitializeParameter(const Parameter& parameter, uint64_t seed, const Tensor& part,
                         int64_t first = 0);

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_PARAMETERS_H_

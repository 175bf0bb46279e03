// The parameters of a Llama: names, shapes, initial values, and where they lie in memory.
//
//   ParameterLayout layout(config);
//   for (const Parameter& p : layout.parameters()) { p.name, p.rows, p.columns, p.offset }
//
// Names and logical shapes are Hugging Face's and don't depend on any layout of the machine. All
// parameters lie in one fp32 buffer in the order of parameters(); q, k, v and gate, up of a layer
// are neighbours, so that one GEMM does the three and one the two. Weights, gradients and both Adam
// moments are four buffers of the same layout. Initial values are a function of (seed, name,
// element index). Thread-safe after construction.

#ifndef CRIA_MODEL_LLAMA_PARAMETERS_H_
#define CRIA_MODEL_LLAMA_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/llama/config.h"
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

  int64_t num_elements() const { return columns > 0 ? rows * columns : rows; }
  std::vector<int64_t> shape() const {
    return columns > 0 ? std::vector<int64_t>{rows, columns} : std::vector<int64_t>{rows};
  }
};

// Offsets of one layer's parameters.
struct LayerOffsets {
  int64_t attention_norm, qkv, out, ffn_norm, gate_up, down;
};

class ParameterLayout {
 public:
  explicit ParameterLayout(const LlamaConfig& config);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const LayerOffsets& layer(int64_t i) const { return layers_[static_cast<size_t>(i)]; }
  int64_t embedding() const { return 0; }
  int64_t final_norm() const { return final_norm_; }
  // The head's matrix: the embedding when tied.
  int64_t head() const { return head_; }
  // Elements of the whole buffer, and of what is in matrices that every token is multiplied with
  // (the embedding's look-up is not; a tied head is).
  int64_t num_elements() const { return num_elements_; }
  int64_t num_matmul_elements() const { return num_matmul_elements_; }
  // Null when there is none of that name.
  const Parameter* Find(std::string_view name) const;

 private:
  int64_t Add(const std::string& name, ParameterKind kind, int64_t rows, int64_t columns,
              double init_std);

  std::vector<Parameter> parameters_;
  std::vector<LayerOffsets> layers_;
  int64_t final_norm_ = 0, head_ = 0, num_elements_ = 0, num_matmul_elements_ = 0;
};

// Fills `weights` (fp32, layout.num_elements()): normal values with standard deviation 0.02,
// divided by sqrt(2 layers) for the two matrices that write into the residual (GPT-2), ones for
// norms.
void InitializeParameters(const ParameterLayout& layout, uint64_t seed, const Tensor& weights);

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_PARAMETERS_H_

#include "model/llama/parameters.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "base/rng.h"
#include "base/str.h"

namespace cria::model {
namespace {

constexpr double kInitStd = 0.02;

}  // namespace

ParameterLayout::ParameterLayout(const LlamaConfig& config) {
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(config.layers));
  Add("model.embed_tokens.weight", ParameterKind::kEmbedding, config.vocab, config.dim, kInitStd);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    const auto matrix = [&](const char* name, int64_t rows, int64_t columns, double std) {
      return Add(StrCat(prefix, name, ".weight"), ParameterKind::kMatrix, rows, columns, std);
    };
    const auto norm = [&](const char* name) {
      return Add(StrCat(prefix, name, ".weight"), ParameterKind::kNorm, config.dim, 0, 0);
    };
    LayerOffsets offsets{};
    offsets.attention_norm = norm("input_layernorm");
    offsets.qkv = matrix("self_attn.q_proj", config.QDim(), config.dim, kInitStd);
    matrix("self_attn.k_proj", config.KvDim(), config.dim, kInitStd);
    matrix("self_attn.v_proj", config.KvDim(), config.dim, kInitStd);
    offsets.out = matrix("self_attn.o_proj", config.dim, config.QDim(), residual_std);
    offsets.ffn_norm = norm("post_attention_layernorm");
    offsets.gate_up = matrix("mlp.gate_proj", config.ffn, config.dim, kInitStd);
    matrix("mlp.up_proj", config.ffn, config.dim, kInitStd);
    offsets.down = matrix("mlp.down_proj", config.dim, config.ffn, residual_std);
    layers_.push_back(offsets);
  }
  final_norm_ = Add("model.norm.weight", ParameterKind::kNorm, config.dim, 0, 0);
  head_ = embedding();
  if (!config.tied_head) {
    head_ = Add("lm_head.weight", ParameterKind::kEmbedding, config.vocab, config.dim, kInitStd);
  }
  num_matmul_elements_ += config.vocab * config.dim;
}

const Parameter* ParameterLayout::Find(std::string_view name) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

int64_t ParameterLayout::Add(const std::string& name, ParameterKind kind, int64_t rows,
                             int64_t columns, double init_std) {
  const int64_t offset = num_elements_;
  parameters_.push_back({.name = name,
                         .kind = kind,
                         .rows = rows,
                         .columns = columns,
                         .offset = offset,
                         .decay = kind != ParameterKind::kNorm,
                         .init_std = static_cast<float>(init_std)});
  num_elements_ += parameters_.back().num_elements();
  if (kind == ParameterKind::kMatrix) num_matmul_elements_ += rows * columns;
  return offset;
}

void InitializeParameters(const ParameterLayout& layout, uint64_t seed, const Tensor& weights) {
  constexpr int64_t kBlock = 4096;
  for (const Parameter& parameter : layout.parameters()) {
    float* values = weights.f32() + parameter.offset;
    const int64_t n = parameter.num_elements();
    if (parameter.init_std == 0) {
      std::fill_n(values, n, 1.0f);
      continue;
    }
    const Rng rng(seed, StreamOf(parameter.name));
    ParallelFor((n + kBlock - 1) / kBlock, [&](int64_t block) {
      const int64_t end = std::min(n, (block + 1) * kBlock);
      for (int64_t i = block * kBlock; i < end; ++i) {
        values[i] = parameter.init_std * rng.Normal(static_cast<uint64_t>(i));
      }
    });
  }
}

}  // namespace cria::model

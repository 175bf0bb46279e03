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

// A parameter before its place is known.
struct ParameterLayout::Placed {
  Parameter parameter;
  int block;
};

ParameterLayout::ParameterLayout(const LlamaConfig& config, const ModelSlice& slice)
    : slice_(slice) {
  const int64_t head_dim = config.HeadDim();
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(config.layers));
  const Range heads = {slice.heads.begin * head_dim, slice.heads.end * head_dim};
  const Range kv_heads = {slice.kv_heads.begin * head_dim, slice.kv_heads.end * head_dim};
  const Range whole = {0, config.dim};
  const bool tp_first = slice.tp_rank == 0;
  // In the model's order; the norms' block is numbered when all others are.
  constexpr int kNorms = -1;
  std::vector<Placed> placed;
  int64_t index = 0;
  const auto add = [&](const std::string& name, ParameterKind kind, int block, Range rows,
                       Range columns, int64_t full_rows, int64_t full_columns, double init_std) {
    const bool vector = kind == ParameterKind::kNorm;
    placed.push_back({{.name = name,
                       .kind = kind,
                       .rows = rows.size(),
                       .columns = vector ? 0 : columns.size(),
                       .offset = 0,
                       .decay = !vector,
                       .init_std = static_cast<float>(init_std),
                       .full_rows = full_rows,
                       .full_columns = vector ? 0 : full_columns,
                       .first_row = rows.begin,
                       .first_column = vector ? 0 : columns.begin,
                       .counted_elsewhere = vector && !tp_first,
                       .index = index++},
                      block});
  };
  const auto embedding = [&](const std::string& name, int block) {
    add(name, ParameterKind::kEmbedding, block, slice.vocab, whole, config.vocab, config.dim,
        kInitStd);
  };
  const auto norm = [&](const std::string& name) {
    add(name, ParameterKind::kNorm, kNorms, whole, {}, config.dim, 0, 0);
  };

  const std::string kEmbedding = "model.embed_tokens.weight";
  if (slice.embedding || slice.tied_copy) {
    embedding_block_ = 0;
    blocks_.push_back({ParameterBlock::Kind::kEmbedding, -1, 0, 0});
    embedding(kEmbedding, embedding_block_);
    placed.back().parameter.counted_elsewhere = slice.tied_copy;
  }
  first_layer_block_ = static_cast<int>(blocks_.size());
  constexpr int64_t kParametersPerLayer = 9;
  for (const LayerRange& chunk : slice.chunks) {
    for (int64_t i = chunk.begin; i < chunk.end; ++i) {
      index = 1 + i * kParametersPerLayer;
      const int block = static_cast<int>(blocks_.size());
      blocks_.push_back(
          {ParameterBlock::Kind::kLayer, static_cast<int64_t>(block - first_layer_block_), 0, 0});
      const std::string prefix = StrCat("model.layers.", i, ".");
      const auto matrix = [&](const char* name, Range rows, Range columns, int64_t full_rows,
                              int64_t full_columns, double std) {
        add(StrCat(prefix, name, ".weight"), ParameterKind::kMatrix, block, rows, columns,
            full_rows, full_columns, std);
      };
      norm(prefix + "input_layernorm.weight");
      matrix("self_attn.q_proj", heads, whole, config.QDim(), config.dim, kInitStd);
      for (const char* name : {"self_attn.k_proj", "self_attn.v_proj"}) {
        matrix(name, kv_heads, whole, config.KvDim(), config.dim, kInitStd);
        placed.back().parameter.counted_elsewhere = slice.kv_replica > 0;
      }
      matrix("self_attn.o_proj", whole, heads, config.dim, config.QDim(), residual_std);
      norm(prefix + "post_attention_layernorm.weight");
      matrix("mlp.gate_proj", slice.ffn, whole, config.ffn, config.dim, kInitStd);
      matrix("mlp.up_proj", slice.ffn, whole, config.ffn, config.dim, kInitStd);
      matrix("mlp.down_proj", whole, slice.ffn, config.dim, config.ffn, residual_std);
    }
  }
  index = 1 + config.layers * kParametersPerLayer;
  if (slice.head) {
    norm("model.norm.weight");
    head_block_ = embedding_block_;
    if (!config.tied_head) {
      head_block_ = static_cast<int>(blocks_.size());
      blocks_.push_back({ParameterBlock::Kind::kHead, -1, 0, 0});
      index = 2 + config.layers * kParametersPerLayer;
      embedding("lm_head.weight", head_block_);
    }
  }
  blocks_.push_back({ParameterBlock::Kind::kNorms, -1, 0, 0});
  Place(&placed);
}

// Block after block; inside a block in the model's order.
void ParameterLayout::Place(std::vector<Placed>* placed) {
  const int norms = norms_block();
  for (int b = 0; b <= norms; ++b) {
    ParameterBlock& block = blocks_[static_cast<size_t>(b)];
    block.begin = num_elements_;
    for (Placed& one : *placed) {
      if ((one.block < 0 ? norms : one.block) != b) continue;
      one.parameter.offset = num_elements_;
      num_elements_ += one.parameter.num_elements();
    }
    block.end = num_elements_;
  }
  const int64_t norms_begin = blocks_.back().begin;
  size_t next = 0;
  const auto offset_of_next = [&](int64_t base) {
    return (*placed)[next++].parameter.offset - base;
  };
  if (embedding_block_ >= 0) ++next;
  for (int64_t i = 0; i < slice_.num_layers(); ++i) {
    const int64_t base = blocks_[static_cast<size_t>(layer_block(i))].begin;
    LayerOffsets at{};
    at.attention_norm = offset_of_next(norms_begin);
    at.qkv = offset_of_next(base);
    next += 2;  // k, v
    at.out = offset_of_next(base);
    at.ffn_norm = offset_of_next(norms_begin);
    at.gate_up = offset_of_next(base);
    ++next;  // up
    at.down = offset_of_next(base);
    layers_.push_back(at);
  }
  if (slice_.head) final_norm_ = offset_of_next(norms_begin);
  for (Placed& one : *placed) {
    const Parameter& p = one.parameter;
    if (p.kind == ParameterKind::kMatrix) num_matmul_elements_ += p.num_elements();
    parameters_.push_back(std::move(one.parameter));
  }
  if (slice_.head) {
    const ParameterBlock& head = blocks_[static_cast<size_t>(head_block_)];
    num_matmul_elements_ += head.size();
  }
}

const Parameter* ParameterLayout::Find(std::string_view name) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

void InitializeParameters(const ParameterLayout& layout, uint64_t seed, const Tensor& weights) {
  for (const Parameter& parameter : layout.parameters()) {
    InitializeParameter(
        parameter, seed,
        weights.Rows(parameter.offset, parameter.offset + parameter.num_elements()));
  }
}

void InitializeParameter(const Parameter& parameter, uint64_t seed, const Tensor& part,
                         int64_t first) {
  constexpr int64_t kBlock = 4096;
  float* values = part.f32();
  const int64_t n = part.num_elements();
  if (parameter.init_std == 0) {
    std::fill_n(values, n, 1.0f);
    return;
  }
  const Rng rng(seed, StreamOf(parameter.name));
  const int64_t columns = parameter.columns;
  ParallelFor((n + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t end = std::min(n, (block + 1) * kBlock);
    for (int64_t i = block * kBlock; i < end; ++i) {
      const int64_t row = parameter.first_row + (first + i) / columns;
      const int64_t column = parameter.first_column + (first + i) % columns;
      values[i] = parameter.init_std *
                  rng.Normal(static_cast<uint64_t>(row * parameter.full_columns + column));
    }
  });
}

}  // namespace cria::model

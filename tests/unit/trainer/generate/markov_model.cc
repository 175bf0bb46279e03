#include "tests/unit/trainer/generate/markov_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/cpu/cpu_ops.h"
#include "tests/unit/trainer/generate/byte_tokenizer.h"

namespace cria::trainer {

void MemoryWeights::Add(const std::string& name, std::vector<int64_t> shape,
                        std::vector<float> values) {
  int64_t size = 1;
  for (const int64_t n : shape) size *= n;
  values.resize(static_cast<size_t>(size));
  values_[name] = std::move(values);
  weights_.push_back({.name = name, .dtype = model::StDtype::kF32, .shape = std::move(shape)});
  std::sort(weights_.begin(), weights_.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
}

Status MemoryWeights::ReadRows(const model::WeightInfo& weight, int64_t begin, int64_t end,
                               model::StDtype dtype, void* to) const {
  return model::ConvertElements(model::StDtype::kF32,
                                values_.at(weight.name).data() + begin * weight.columns(),
                                (end - begin) * weight.columns(), dtype, to);
}

MarkovModel::MarkovModel(const std::function<float(int32_t, int32_t)>& logit)
    : ops_(model::cpu::NewCpuOps()) {
  constexpr int64_t kSize = kByteVocab + 1;  // an even dim
  config_ = {.layers = 1,
             .dim = kSize,
             .heads = 1,
             .kv_heads = 1,
             .head_dim = 2,
             .ffn = 2,
             .vocab = kByteVocab,
             .max_positions = 4096,
             .rope_scaling = {},
             .tied_head = false};
  // The last norm makes a unit vector's 1 a sqrt(D / (1 + D eps)).
  const double one = std::sqrt(kSize / (1 + kSize * config_.norm_eps));
  embedding_.resize(kByteVocab * kSize);
  head_.resize(kByteVocab * kSize);
  for (int32_t from = 0; from < kByteVocab; ++from) {
    embedding_[static_cast<size_t>(from * kSize + from)] = 1;
    for (int32_t to = 0; to < kByteVocab; ++to) {
      head_[static_cast<size_t>(to * kSize + from)] = static_cast<float>(logit(from, to) / one);
    }
  }
}

void MarkovModel::Poison(int32_t token) {
  embedding_[static_cast<size_t>(token * config_.dim)] = std::numeric_limits<float>::quiet_NaN();
}

MemoryWeights MarkovModel::Weights() const {
  const int64_t d = config_.dim;
  MemoryWeights weights;
  weights.Add("model.embed_tokens.weight", {config_.vocab, d}, embedding_);
  weights.Add("lm_head.weight", {config_.vocab, d}, head_);
  weights.Add("model.norm.weight", {d}, std::vector<float>(static_cast<size_t>(d), 1));
  const std::string layer = "model.layers.0.";
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
    weights.Add(layer + norm + ".weight", {d}, std::vector<float>(static_cast<size_t>(d), 1));
  }
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    weights.Add(layer + "self_attn." + name + ".weight", {2, d}, {});
  }
  weights.Add(layer + "self_attn.o_proj.weight", {d, 2}, {});
  weights.Add(layer + "mlp.gate_proj.weight", {2, d}, {});
  weights.Add(layer + "mlp.up_proj.weight", {2, d}, {});
  weights.Add(layer + "mlp.down_proj.weight", {d, 2}, {});
  return weights;
}

std::unique_ptr<model::LlamaDecoder> MarkovModel::NewDecoder(
    const model::DecoderOptions& options) const {
  auto decoder = model::LlamaDecoder::Load(config_, options, Weights(), ops_.get());
  CRIA_CHECK(decoder.ok(), Message(decoder.status()));
  return *std::move(decoder);
}

float AlphabetLogit(int32_t from, int32_t to) {
  const int32_t next = from >= 'a' && from < 'z' ? from + 1 : 'a';
  return to == next ? 10.0f : 0.0f;
}

}  // namespace cria::trainer

#include "tests/unit/model/llama/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/rng.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/rope_table.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Values;

Tensor Indices(const std::vector<int32_t>& values) {
  return Tensor(const_cast<int32_t*>(values.data()), DType::kI32,
                {static_cast<int64_t>(values.size())});
}

std::vector<float> CopyOf(const Tensor& x) {
  return std::vector<float>(x.f32(), x.f32() + x.num_elements());
}

}  // namespace

LlamaConfig TinyConfig() {
  return {.layers = 2,
          .dim = 24,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .ffn = 40,
          .vocab = 37,
          .max_positions = 64,
          .rope_theta = 10000,
          .rope_scaling = {},
          .tied_head = true};
}

LlamaConfig SmallConfig() {
  return {.layers = 2,
          .dim = 160,
          .heads = 3,
          .kv_heads = 1,
          .head_dim = 48,
          .ffn = 272,
          .vocab = 131,
          .max_positions = 256,
          .rope_theta = 10000,
          .rope_scaling = {},
          .tied_head = false};
}

TokenBatch OwnedBatch::view() const {
  return {.batch = batch,
          .time = time,
          .tokens = Indices(tokens),
          .targets = Indices(targets),
          .positions = Indices(positions),
          .doc_start = Indices(doc_start)};
}

OwnedBatch OwnedBatch::Sequences(int64_t begin, int64_t end) const {
  const auto cut = [&](const std::vector<int32_t>& all) {
    return std::vector<int32_t>(all.begin() + begin * time, all.begin() + end * time);
  };
  return {end - begin, time, cut(tokens), cut(targets), cut(positions), cut(doc_start)};
}

int64_t OwnedBatch::num_valid() const {
  return std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
}

OwnedBatch RandomBatch(const LlamaConfig& config, int64_t batch, int64_t time, uint64_t seed,
                       int64_t document, int64_t masked) {
  const Rng rng(seed, StreamOf("tiny_model batch"));
  const auto vocab = static_cast<uint64_t>(config.vocab);
  OwnedBatch b{
      .batch = batch, .time = time, .tokens = {}, .targets = {}, .positions = {}, .doc_start = {}};
  for (int64_t i = 0; i < batch * time; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const int64_t t = i % time;
    const int64_t start = document > 0 ? t / document * document : 0;
    b.tokens.push_back(static_cast<int32_t>(rng.Below(3 * index, vocab)));
    b.targets.push_back(static_cast<int32_t>(rng.Below(3 * index + 1, vocab)));
    if (masked > 0 && rng.Below(3 * index + 2, static_cast<uint64_t>(masked)) == 0) {
      b.targets.back() = -100;
    }
    b.positions.push_back(static_cast<int32_t>(t - start));
    b.doc_start.push_back(static_cast<int32_t>(start));
  }
  return b;
}

TestModel::TestModel(const LlamaConfig& config, LlamaOptions options, uint64_t seed, float scale)
    : ops_(cpu::NewCpuOps()), model_(config, options, ops_.get()) {
  InitializeParameters(model_.layout(), seed, model_.weights());
  for (const Parameter& p : model_.layout().parameters()) {
    float* values = model_.weights().f32() + p.offset;
    const Rng rng(seed, StreamOf("tiny_model norm"));
    for (int64_t i = 0; i < p.num_elements(); ++i) {
      // Norms all ones would hide a wrong factor.
      values[i] = p.kind == ParameterKind::kNorm
                      ? 1 + 0.25f * rng.Normal(static_cast<uint64_t>(p.offset + i))
                      : values[i] * scale;
    }
  }
  model_.WeightsChanged();
}

std::vector<float> TestModel::weights() const { return CopyOf(model_.weights()); }
std::vector<float> TestModel::gradients() const { return CopyOf(model_.gradients()); }

void TestModel::SetWeights(const std::vector<float>& values) {
  CRIA_CHECK_EQ(static_cast<int64_t>(values.size()), model_.layout().num_elements());
  std::memcpy(model_.weights().data(), values.data(), values.size() * sizeof(float));
  model_.WeightsChanged();
}

float* TestModel::WeightsOf(const std::string& name) {
  const Parameter* parameter = model_.layout().Find(name);
  CRIA_CHECK(parameter != nullptr, "no parameter ", name);
  return model_.weights().f32() + parameter->offset;
}

std::vector<float> TestModel::GradientOf(const std::string& name) const {
  const Parameter* p = model_.layout().Find(name);
  CRIA_CHECK(p != nullptr, "no parameter ", name);
  const float* begin = model_.gradients().f32() + p->offset;
  return std::vector<float>(begin, begin + p->num_elements());
}

std::vector<float> TestModel::Logits(const OwnedBatch& batch) {
  const int64_t rows = batch.batch * batch.time;
  std::vector<float> logits(static_cast<size_t>(rows * config().vocab));
  model_.Logits(batch.view(), 0, rows, Tensor(logits.data(), DType::kF32, {rows, config().vocab}));
  return logits;
}

LossSum TestModel::Step(const OwnedBatch& batch) {
  model_.ZeroGradients();
  return model_.ForwardBackward(batch.view(), 1.0f / static_cast<float>(batch.num_valid()));
}

std::vector<double> ReferenceLogits(const LlamaConfig& config, const std::vector<double>& weights,
                                    const OwnedBatch& batch) {
  const ParameterLayout layout(config);
  const int64_t rows = batch.batch * batch.time;
  const int64_t head_dim = config.HeadDim();
  const auto parameter = [&](const std::string& name) {
    const Parameter* p = layout.Find(name);
    CRIA_CHECK(p != nullptr, "no parameter ", name);
    return Values(weights.begin() + p->offset, weights.begin() + p->offset + p->num_elements());
  };
  const auto linear = [&](const Values& x, const std::string& name) {
    const Parameter* p = layout.Find(name);
    return reference::Matmul(x, parameter(name),
                             {.m = rows, .n = p->rows, .k = p->columns, .transpose_b = true});
  };
  const auto add = [](Values a, const Values& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  Values cosines, sines;
  for (int64_t position = 0; position < config.max_positions; ++position) {
    for (const double frequency : RopeFrequencies(config)) {
      cosines.push_back(std::cos(static_cast<double>(position) * frequency));
      sines.push_back(std::sin(static_cast<double>(position) * frequency));
    }
  }
  const auto rope = [&](const Values& x, int64_t heads) {
    return reference::Rope(x, batch.positions, cosines, sines, heads, head_dim, false);
  };

  Values x = reference::Embedding(batch.tokens, parameter("model.embed_tokens.weight"), config.dim);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    Values h = reference::RmsNorm(x, parameter(layer + "input_layernorm.weight"), config.norm_eps);
    const Values attention =
        reference::Attention(rope(linear(h, layer + "self_attn.q_proj.weight"), config.heads),
                             rope(linear(h, layer + "self_attn.k_proj.weight"), config.kv_heads),
                             linear(h, layer + "self_attn.v_proj.weight"), batch.doc_start,
                             {.batch = batch.batch,
                              .time = batch.time,
                              .heads = config.heads,
                              .kv_heads = config.kv_heads,
                              .head_dim = head_dim,
                              .scale = 1 / std::sqrt(static_cast<double>(head_dim))});
    x = add(x, linear(attention, layer + "self_attn.o_proj.weight"));
    h = reference::RmsNorm(x, parameter(layer + "post_attention_layernorm.weight"),
                           config.norm_eps);
    const Values gate = linear(h, layer + "mlp.gate_proj.weight");
    const Values up = linear(h, layer + "mlp.up_proj.weight");
    Values gate_up;
    for (int64_t r = 0; r < rows; ++r) {
      for (const Values* half : {&gate, &up}) {
        gate_up.insert(gate_up.end(), half->begin() + r * config.ffn,
                       half->begin() + (r + 1) * config.ffn);
      }
    }
    x = add(x, linear(reference::Swiglu(gate_up, config.ffn), layer + "mlp.down_proj.weight"));
  }
  x = reference::RmsNorm(x, parameter("model.norm.weight"), config.norm_eps);
  return linear(x, config.tied_head ? "model.embed_tokens.weight" : "lm_head.weight");
}

double ReferenceLoss(const LlamaConfig& config, const std::vector<double>& weights,
                     const OwnedBatch& batch, double z_loss) {
  double sum = 0;
  for (const double loss : reference::CrossEntropy(ReferenceLogits(config, weights, batch),
                                                   batch.targets, config.vocab, z_loss)) {
    sum += loss;
  }
  return sum;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double largest = 1e-30, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max<double>(largest, std::fabs(want[i]));
    error = std::max(error, difference);
  }
  return error / largest;
}

std::vector<Precision> AllPrecisions() {
  std::vector<Precision> all;
  for (const std::string& name : PrecisionNames()) all.push_back(*PrecisionFromName(name));
  return all;
}

}  // namespace cria::model

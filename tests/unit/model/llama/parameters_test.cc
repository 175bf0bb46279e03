#include "model/llama/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

LlamaConfig Llama3(int64_t layers, int64_t dim, int64_t heads, int64_t ffn) {
  return {.layers = layers,
          .dim = dim,
          .heads = heads,
          .kv_heads = 8,
          .ffn = ffn,
          .vocab = 128256,
          .max_positions = 8192,
          .rope_scaling = {},
          .tied_head = false};
}

TEST(ParametersTest, CountsThoseOfThePublishedModels) {
  EXPECT_EQ(ParameterLayout(Llama3(32, 4096, 32, 14336)).num_elements(), 8'030'261'248);
  EXPECT_EQ(ParameterLayout(Llama3(80, 8192, 64, 28672)).num_elements(), 70'553'706'496);
  EXPECT_EQ(ParameterLayout(Llama3(126, 16384, 128, 53248)).num_elements(), 405'853'388'800);
  LlamaConfig llama32_1b = Llama3(16, 2048, 32, 8192);
  llama32_1b.tied_head = true;
  EXPECT_EQ(ParameterLayout(llama32_1b).num_elements(), 1'235'814'400);
}

// Which parameters decay, in the order of the buffer. A refactoring once made norms decay.
TEST(ParametersTest, GroupsOfATinyModel) {
  LlamaConfig config = TinyConfig();
  config.layers = 1;
  config.tied_head = false;
  struct Row {
    const char* name;
    std::vector<int64_t> shape;
    bool decay;
    double init_std;
  };
  const double residual = 0.02 / std::sqrt(2.0);
  const std::vector<Row> want = {
      {"model.embed_tokens.weight", {37, 24}, true, 0.02},
      {"model.layers.0.input_layernorm.weight", {24}, false, 0},
      {"model.layers.0.self_attn.q_proj.weight", {24, 24}, true, 0.02},
      {"model.layers.0.self_attn.k_proj.weight", {12, 24}, true, 0.02},
      {"model.layers.0.self_attn.v_proj.weight", {12, 24}, true, 0.02},
      {"model.layers.0.self_attn.o_proj.weight", {24, 24}, true, residual},
      {"model.layers.0.post_attention_layernorm.weight", {24}, false, 0},
      {"model.layers.0.mlp.gate_proj.weight", {40, 24}, true, 0.02},
      {"model.layers.0.mlp.up_proj.weight", {40, 24}, true, 0.02},
      {"model.layers.0.mlp.down_proj.weight", {24, 40}, true, residual},
      {"model.norm.weight", {24}, false, 0},
      {"lm_head.weight", {37, 24}, true, 0.02},
  };
  const ParameterLayout layout(config);
  ASSERT_EQ(layout.parameters().size(), want.size());
  // Block after block, the norms' last.
  int64_t offset = 0;
  for (const bool norms : {false, true}) {
    for (const Parameter& p : layout.parameters()) {
      if ((p.kind == ParameterKind::kNorm) != norms) continue;
      EXPECT_EQ(p.offset, offset) << p.name;
      offset += p.num_elements();
    }
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const Parameter& p = layout.parameters()[i];
    EXPECT_EQ(p.index, static_cast<int64_t>(i)) << p.name;
    EXPECT_EQ(p.full_shape(), p.shape()) << p.name;
    EXPECT_EQ(p.name, want[i].name);
    EXPECT_EQ(p.shape(), want[i].shape) << p.name;
    EXPECT_EQ(p.decay, want[i].decay) << p.name;
    EXPECT_FLOAT_EQ(p.init_std, static_cast<float>(want[i].init_std)) << p.name;
    EXPECT_EQ(layout.Find(p.name), &p);
  }
  EXPECT_EQ(layout.num_elements(), offset);
  const ParameterBlock& head = layout.blocks()[static_cast<size_t>(layout.head_block())];
  EXPECT_EQ(head.begin, layout.Find("lm_head.weight")->offset);
  EXPECT_EQ(layout.Find("model.norm"), nullptr);
}

// What one GEMM multiplies together lies together.
TEST(ParametersTest, GroupedMatricesAreNeighbours) {
  for (const LlamaConfig& config : {TinyConfig(), SmallConfig()}) {
    const ParameterLayout layout(config);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string prefix = "model.layers." + std::to_string(i) + ".";
      const auto offset = [&](const char* name) {
        return layout.Find(prefix + name + ".weight")->offset;
      };
      const LayerOffsets& at = layout.layer(i);
      const int64_t block = layout.blocks()[static_cast<size_t>(layout.layer_block(i))].begin;
      const int64_t norms = layout.blocks()[static_cast<size_t>(layout.norms_block())].begin;
      EXPECT_EQ(norms + at.attention_norm, offset("input_layernorm"));
      EXPECT_EQ(block + at.qkv, offset("self_attn.q_proj"));
      EXPECT_EQ(block + at.qkv + config.QDim() * config.dim, offset("self_attn.k_proj"));
      EXPECT_EQ(block + at.qkv + (config.QDim() + config.KvDim()) * config.dim,
                offset("self_attn.v_proj"));
      EXPECT_EQ(block + at.out, offset("self_attn.o_proj"));
      EXPECT_EQ(norms + at.ffn_norm, offset("post_attention_layernorm"));
      EXPECT_EQ(block + at.gate_up, offset("mlp.gate_proj"));
      EXPECT_EQ(block + at.gate_up + config.ffn * config.dim, offset("mlp.up_proj"));
      EXPECT_EQ(block + at.down, offset("mlp.down_proj"));
    }
    const int64_t norms = layout.blocks()[static_cast<size_t>(layout.norms_block())].begin;
    EXPECT_EQ(norms + layout.final_norm(), layout.Find("model.norm.weight")->offset);
  }
}

std::vector<float> Initial(const LlamaConfig& config, uint64_t seed) {
  const ParameterLayout layout(config);
  std::vector<float> values(static_cast<size_t>(layout.num_elements()));
  InitializeParameters(layout, seed, Tensor(values.data(), DType::kF32, {layout.num_elements()}));
  return values;
}

std::vector<float> InitialOf(const LlamaConfig& config, uint64_t seed, const std::string& name) {
  const ParameterLayout layout(config);
  const Parameter* p = layout.Find(name);
  const std::vector<float> all = Initial(config, seed);
  return std::vector<float>(all.begin() + p->offset, all.begin() + p->offset + p->num_elements());
}

// Every parallel layout must start from the same weights.
TEST(ParametersTest, InitialValuesAreAFunctionOfSeedNameAndIndex) {
  LlamaConfig deep = TinyConfig();
  deep.layers = 5;
  deep.tied_head = false;
  deep.ffn = 64;
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.self_attn.v_proj.weight", "model.layers.0.input_layernorm.weight"}) {
    EXPECT_EQ(InitialOf(TinyConfig(), 3, name), InitialOf(deep, 3, name)) << name;
  }
  // The residual's matrices differ by the factor that the number of layers gives.
  const std::vector<float> shallow =
      InitialOf(TinyConfig(), 3, "model.layers.0.self_attn.o_proj.weight");
  std::vector<float> scaled = InitialOf(deep, 3, "model.layers.0.self_attn.o_proj.weight");
  for (float& x : scaled) x *= std::sqrt(5.0f / 2.0f);
  EXPECT_LT(RelativeError(scaled, shallow), 1e-6);
  // More rows of the same width: the first ones are the same.
  LlamaConfig wide = TinyConfig();
  wide.vocab = 99;
  std::vector<float> rows = InitialOf(wide, 3, "model.embed_tokens.weight");
  rows.resize(37 * 24);
  EXPECT_EQ(rows, InitialOf(TinyConfig(), 3, "model.embed_tokens.weight"));

  EXPECT_NE(Initial(TinyConfig(), 3), Initial(TinyConfig(), 4));
  EXPECT_NE(InitialOf(TinyConfig(), 3, "model.layers.0.self_attn.q_proj.weight"),
            InitialOf(TinyConfig(), 3, "model.layers.1.self_attn.q_proj.weight"));
}

TEST(ParametersTest, InitialValuesDoNotDependOnTheNumberOfThreads) {
  const int num_threads = NumThreads();
  SetNumThreads(1);
  const std::vector<float> one = Initial(SmallConfig(), 1);
  SetNumThreads(3);
  EXPECT_EQ(Initial(SmallConfig(), 1), one);
  SetNumThreads(num_threads);
}

TEST(ParametersTest, InitialValuesHaveTheStatedMoments) {
  const ParameterLayout layout(SmallConfig());
  const std::vector<float> values = Initial(SmallConfig(), 1);
  for (const Parameter& p : layout.parameters()) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < p.num_elements(); ++i) {
      const double x = values[static_cast<size_t>(p.offset + i)];
      sum += x;
      squares += x * x;
    }
    const double n = static_cast<double>(p.num_elements());
    if (p.kind == ParameterKind::kNorm) {
      EXPECT_EQ(sum, n) << p.name;
      EXPECT_EQ(squares, n) << p.name;
      continue;
    }
    const double std = static_cast<double>(p.init_std);
    // Five standard deviations of either estimate.
    EXPECT_NEAR(sum / n, 0, 5 * std / std::sqrt(n)) << p.name;
    EXPECT_NEAR(squares / n, std * std, 5 * std * std * std::sqrt(2 / n)) << p.name;
  }
}

}  // namespace
}  // namespace cria::model

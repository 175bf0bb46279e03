#include "trainer/optimizer/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "base/rng.h"
#include "model/cpu/cpu_ops.h"

namespace cria::trainer {
namespace {

model::LlamaConfig Config() {
  return {.layers = 2,
          .dim = 12,
          .heads = 2,
          .kv_heads = 1,
          .ffn = 20,
          .vocab = 31,
          .max_positions = 32,
          .rope_scaling = {},
          .tied_head = false};
}

class AdamWTest : public testing::Test {
 protected:
  AdamWTest()
      : weights_(buffers_.weights().f32(), static_cast<size_t>(layout_.num_elements())),
        gradients_(buffers_.gradients().f32(), weights_.size()) {
    const Rng rng(1, StreamOf("adamw test"));
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = rng.Normal(2 * i);
      gradients_[i] = 0.01f * rng.Normal(2 * i + 1);
    }
  }
  std::vector<float> Values(std::span<const float> x) const { return {x.begin(), x.end()}; }
  double TrueNorm() const {
    double squares = 0;
    for (const float g : gradients_) squares += static_cast<double>(g) * g;
    return std::sqrt(squares);
  }
  GradientNorm NormOf(AdamW& optimizer) {
    const StatusOr<GradientNorm> norm = optimizer.Norm();
    EXPECT_TRUE(norm.ok()) << Message(norm.status());
    return *norm;
  }

  const std::unique_ptr<model::Ops> ops_ = model::cpu::NewCpuOps();
  model::ParameterBuffers buffers_{model::ParameterLayout(Config()), {}, nullptr, ops_.get()};
  const model::ParameterLayout& layout_ = buffers_.layout();
  const std::span<float> weights_, gradients_;
};

// Fast-LLM 542, lit-llama 254: after a refactoring, norms were decayed. The table is written out.
TEST_F(AdamWTest, DecaysMatricesAndEmbeddingsButNoNorm) {
  const std::vector<std::pair<std::string, bool>> table = {
      {"model.embed_tokens.weight", true},
      {"model.layers.0.input_layernorm.weight", false},
      {"model.layers.0.self_attn.q_proj.weight", true},
      {"model.layers.0.self_attn.k_proj.weight", true},
      {"model.layers.0.self_attn.v_proj.weight", true},
      {"model.layers.0.self_attn.o_proj.weight", true},
      {"model.layers.0.post_attention_layernorm.weight", false},
      {"model.layers.0.mlp.gate_proj.weight", true},
      {"model.layers.0.mlp.up_proj.weight", true},
      {"model.layers.0.mlp.down_proj.weight", true},
      {"model.layers.1.input_layernorm.weight", false},
      {"model.layers.1.self_attn.q_proj.weight", true},
      {"model.layers.1.self_attn.k_proj.weight", true},
      {"model.layers.1.self_attn.v_proj.weight", true},
      {"model.layers.1.self_attn.o_proj.weight", true},
      {"model.layers.1.post_attention_layernorm.weight", false},
      {"model.layers.1.mlp.gate_proj.weight", true},
      {"model.layers.1.mlp.up_proj.weight", true},
      {"model.layers.1.mlp.down_proj.weight", true},
      {"model.norm.weight", false},
      {"lm_head.weight", true}};
  ASSERT_EQ(layout_.parameters().size(), table.size());
  // With zero gradients a step is the decay alone.
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  const std::vector<float> before = Values(weights_);
  AdamW optimizer(&buffers_, {.weight_decay = 0.1}, ops_.get());
  optimizer.Step(0.5, 0.0);
  for (const auto& [name, decays] : table) {
    const model::Parameter* parameter = layout_.Find(name);
    ASSERT_NE(parameter, nullptr) << name;
    for (int64_t i = 0; i < parameter->num_elements(); ++i) {
      const auto at = static_cast<size_t>(parameter->offset + i);
      const double want = before[at] * (decays ? 1 - 0.5 * 0.1 : 1.0);
      ASSERT_NEAR(weights_[at], want, 1e-6) << name << " element " << i;
      if (!decays) {
        ASSERT_EQ(weights_[at], before[at]);
      }
    }
  }
}

TEST_F(AdamWTest, StepsAreTheClosedForm) {
  const AdamWOptions options = {
      .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0.2, .clip_norm = 0.05};
  AdamW optimizer(&buffers_, options, ops_.get());
  std::vector<double> w(weights_.begin(), weights_.end()), m(w.size()), v(w.size());
  for (int step = 1; step <= 4; ++step) {
    const double norm = NormOf(optimizer).value;
    EXPECT_NEAR(norm / TrueNorm(), 1, 1e-12);
    ASSERT_GT(norm, 0.05);  // clipping is at work
    const double clip = 0.05 / (norm + 1e-6);
    for (const model::Parameter& p : layout_.parameters()) {
      for (int64_t i = p.offset; i < p.offset + p.num_elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        const double g = gradients_[at] * clip;
        m[at] = 0.8 * m[at] + 0.2 * g;
        v[at] = 0.9 * v[at] + 0.1 * g * g;
        const double update = m[at] / (1 - std::pow(0.8, step)) /
                              (std::sqrt(v[at] / (1 - std::pow(0.9, step))) + 1e-6);
        w[at] -= 0.01 * (update + (p.decay ? 0.2 : 0) * w[at]);
      }
    }
    optimizer.Step(0.01, norm);
    for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(weights_[i], w[i], 2e-6) << "step " << step;
    for (float& g : gradients_) g *= -0.7f;
    EXPECT_EQ(optimizer.num_steps(), step);
  }
  for (size_t i = 0; i < w.size(); ++i) {
    ASSERT_NEAR(optimizer.m().f32()[i], m[i], 1e-8);
    ASSERT_NEAR(optimizer.v().f32()[i], v[i], 1e-9);
  }
}

TEST_F(AdamWTest, ClippingLeavesSmallGradientsAlone) {
  for (const double clip_norm : {0.0, 1e6}) {
    AdamW optimizer(&buffers_, {.clip_norm = clip_norm}, ops_.get());
    optimizer.Step(0.01, NormOf(optimizer).value);
    for (size_t i = 0; i < weights_.size(); i += 7) {
      ASSERT_NEAR(optimizer.m().f32()[i], 0.1 * gradients_[i], 1e-9) << clip_norm;
    }
  }
}

TEST_F(AdamWTest, NormNamesTheFirstParameterThatIsNotFinite) {
  AdamW optimizer(&buffers_, {}, ops_.get());
  EXPECT_TRUE(NormOf(optimizer).finite());
  const std::vector<float> good = Values(gradients_);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    std::copy(good.begin(), good.end(), gradients_.begin());
    const model::Parameter* last = layout_.Find("lm_head.weight");
    const model::Parameter* first = layout_.Find("model.layers.1.mlp.up_proj.weight");
    gradients_[static_cast<size_t>(last->offset)] = bad;
    EXPECT_EQ(NormOf(optimizer).first_non_finite, last->name);
    gradients_[static_cast<size_t>(first->offset + first->num_elements()) - 1] = bad;
    const GradientNorm norm = NormOf(optimizer);
    EXPECT_EQ(norm.first_non_finite, first->name);
    EXPECT_FALSE(norm.finite());
    EXPECT_FALSE(std::isfinite(norm.value));
  }
  // Large but finite gradients are no fault: their squares are summed in double.
  std::fill(gradients_.begin(), gradients_.end(), 1e30f);
  EXPECT_TRUE(NormOf(optimizer).finite());
}

TEST_F(AdamWTest, AStepOnANormThatIsNotFiniteIsRefused) {
  AdamW optimizer(&buffers_, {}, ops_.get());
  EXPECT_DEATH(optimizer.Step(0.1, std::numeric_limits<double>::quiet_NaN()), "gradient norm nan");
}

TEST_F(AdamWTest, StateIsTwoNumbersForEachElementThatTheRankUpdates) {
  const int64_t n = layout_.num_elements();
  EXPECT_GE(AdamW::StateBytes(buffers_.parts()), 8 * n);
  EXPECT_LE(AdamW::StateBytes(buffers_.parts()), 8 * n + 256);
  const model::ParameterParts quarter(layout_, model::Shard::kOptimizer, 4, 1);
  const int64_t norms = layout_.blocks().back().size();
  const int64_t gaps = 16 * quarter.updated().num_blocks();
  EXPECT_GE(AdamW::StateBytes(quarter), 8 * (n - norms) / 4);
  EXPECT_LE(AdamW::StateBytes(quarter), 8 * ((n - norms) / 4 + norms + gaps));
}

}  // namespace
}  // namespace cria::trainer

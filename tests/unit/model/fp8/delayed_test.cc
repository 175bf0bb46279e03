// Delayed scaling's state: the update rule by hand, and the bug reports that are about it.

#include "model/fp8/delayed.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "model/fp8/quantize.h"
#include "model/fp8/scale.h"

namespace cria::model {
namespace {

constexpr QuantizeSpec kSpec = {Fp8Format::kE4M3, ScaleUnit::kTensor, false};

std::vector<float> HistoryOf(const DelayedScaling& state, int tensor) {
  const std::span<const float> history = state.history(tensor);
  return {history.begin(), history.end()};
}

TEST(DelayedScalingTest, FollowsTheRuleStepByStep) {
  DelayedScaling state({.history_length = 3});
  const int x = state.Register("x", Fp8Format::kE4M3);
  EXPECT_EQ(state.scale(x), 0);
  // Amax, then what the scale and the slots must be after the update.
  const struct {
    float amax, scale;
    std::vector<float> history;
  } steps[] = {
      {4, 448.0f / 4, {0, 0, 4}}, {2, 448.0f / 4, {0, 4, 2}},
      {8, 448.0f / 8, {0, 2, 8}},  // the maximum of 8, 4, 2 before 4 falls out
      {1, 448.0f / 8, {0, 8, 1}}, {1, 448.0f / 8, {0, 1, 1}},
      {1, 448.0f / 1, {0, 1, 1}},
  };
  for (const auto& step : steps) {
    state.RecordAmax(x, step.amax);
    state.RecordAmax(x, step.amax / 2);  // a later micro-batch; the larger counts
    state.Update();
    EXPECT_EQ(state.scale(x), step.scale);
    EXPECT_EQ(HistoryOf(state, x), step.history);
  }
}

TEST(DelayedScalingTest, TakesTheLastStepWhenMostRecentIsAsked) {
  DelayedScaling state(
      {.history_length = 4, .margin = 1, .algorithm = DelayedScaling::Algorithm::kMostRecent});
  const int x = state.Register("x", Fp8Format::kE5M2);
  for (const float amax : {16.0f, 2.0f, 4.0f}) {
    state.RecordAmax(x, amax);
    state.Update();
    EXPECT_EQ(state.scale(x), 57344.0f / amax / 2);
  }
}

TEST(DelayedScalingTest, WorksWithAHistoryOfOne) {
  DelayedScaling state({.history_length = 1});
  const int x = state.Register("x", Fp8Format::kE4M3);
  state.RecordAmax(x, 7);
  state.Update();
  EXPECT_EQ(state.scale(x), 64);
  state.Update();  // nothing recorded: the scale stays
  EXPECT_EQ(state.scale(x), 64);
}

TEST(DelayedScalingTest, KeepsTheScaleWhenAmaxIsZeroOrNotFinite) {
  DelayedScaling state({.history_length = 2});
  const int x = state.Register("x", Fp8Format::kE4M3);
  state.RecordAmax(x, 7);
  state.Update();
  for (const float bad :
       {0.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (int step = 0; step < 5; ++step) {
      state.RecordAmax(x, bad);
      state.Update();
      EXPECT_EQ(state.scale(x), 64);
      EXPECT_TRUE(std::isfinite(state.dequant(x)));
    }
  }
  state.RecordAmax(x, 14);  // and it recovers at once
  state.Update();
  EXPECT_EQ(state.scale(x), 32);
}

TEST(DelayedScalingTest, IsTheLargestFloatWhenAmaxIsTiny) {
  DelayedScaling state({});
  const int x = state.Register("x", Fp8Format::kE4M3);
  state.RecordAmax(x, std::numeric_limits<float>::denorm_min());
  state.Update();
  EXPECT_EQ(state.scale(x), kMaxFloat);
  EXPECT_GT(state.dequant(x), 0);
}

TEST(DelayedScalingTest, LeavesNoTraceWhenAStepIsDiscarded) {
  DelayedScaling state({});
  const int x = state.Register("x", Fp8Format::kE4M3);
  state.RecordAmax(x, 3);
  state.Update();
  const std::vector<float> before = HistoryOf(state, x);
  state.RecordAmax(x, 1e30f);
  state.DiscardStep();
  EXPECT_EQ(HistoryOf(state, x), before);
  EXPECT_EQ(state.scale(x), 448.0f / 3);
}

// State was updated in every micro-batch while quantised weights were kept: the error of the second
// micro-batch rose from 0.07 to 1.7.
TEST(DelayedScalingTest, GivesEqualOutputsWhenAllMicroBatchesAreEqual) {
  DelayedScaling state({});
  const int x = state.Register("x", Fp8Format::kE4M3);
  const std::vector<float> values = {0.3f, -1.7f, 0.01f, 2.2f, -0.6f};
  for (int step = 0; step < 3; ++step) {
    std::vector<uint16_t> first;
    float dequant = 0;
    for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
      std::vector<uint16_t> out(values.size());
      const QuantizeResult result =
          Quantize(kSpec, {values.data(), ElementType::kF32, 1, 5, 5},
                   {out.data(), ElementType::kBF16, 5}, {.fixed_scale = state.scale(x)});
      state.RecordAmax(x, result.amax);
      if (micro_batch == 0) {
        first = out;
        dequant = result.dequant;
      }
      EXPECT_EQ(out, first);
      EXPECT_EQ(result.dequant, dequant);
    }
    state.Update();
  }
}

// The amax of the random initialisation was used for weights loaded afterwards.
TEST(DelayedScalingTest, UsesNoOldAmaxWhenWeightsAreReplaced) {
  DelayedScaling state({});
  const int w = state.Register("w", Fp8Format::kE4M3);
  std::vector<float> weights(64);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = 0.02f * (static_cast<float>(i) - 31.5f) / 32;
  }
  const auto worst_relative_error = [&] {
    std::vector<float> out(weights.size());
    const QuantizeResult result =
        Quantize(kSpec, {weights.data(), ElementType::kF32, 1, 64, 64},
                 {out.data(), ElementType::kF32, 64}, {.fixed_scale = state.scale(w)});
    state.RecordAmax(w, result.amax);
    state.Update();
    float worst = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      worst = std::max(worst, std::fabs(out[i] * result.dequant / weights[i] - 1));
    }
    return worst;
  };
  EXPECT_LE(worst_relative_error(), 1.0f / 16 + 1e-6f);  // half a step of 3 bits, from step 1 on
  for (float& x : weights) x *= 1000;
  state.Reset();
  EXPECT_LE(worst_relative_error(), 1.0f / 16 + 1e-6f);
}

// Loss exploded after a resume: history or scale came back changed, or 1 / scale didn't come back.
TEST(DelayedScalingTest, ComesBackBitForBitFromACheckpoint) {
  DelayedScaling saved({.history_length = 5});
  DelayedScaling loaded({.history_length = 5});
  for (DelayedScaling* state : {&saved, &loaded}) {
    for (const char* part : {"input", "weight", "grad"}) {
      state->Register(std::string("layers.0.attn.qkv.") + part, Fp8Format::kE4M3);
    }
  }
  for (int step = 0; step < 7; ++step) {
    for (int t = 0; t < 2; ++t) saved.RecordAmax(t, 0.1f + 0.37f * static_cast<float>(step + t));
    saved.Update();
  }
  saved.RecordAmax(0, 12.34f);  // in the middle of a step
  loaded.RecordAmax(1, 99);     // what was there is gone
  ASSERT_TRUE(loaded.Load(saved.Save()).ok());
  for (int step = 0; step < 8; ++step) {
    for (int t = 0; t < 3; ++t) {
      EXPECT_EQ(std::bit_cast<uint32_t>(loaded.scale(t)), std::bit_cast<uint32_t>(saved.scale(t)));
      EXPECT_EQ(HistoryOf(loaded, t), HistoryOf(saved, t));
      if (saved.scale(t) != 0) {
        EXPECT_FLOAT_EQ(loaded.scale(t) * loaded.dequant(t), 1);
        EXPECT_EQ(loaded.dequant(t), 1 / loaded.scale(t));
      }
    }
    for (DelayedScaling* state : {&saved, &loaded}) {
      state->RecordAmax(0, static_cast<float>(step) + 0.5f);
      state->Update();
    }
  }
  EXPECT_EQ(saved.scale(2), 0);  // never recorded: still none after the resume
}

TEST(DelayedScalingTest, SavesTheSameSizeAfterAThousandSteps) {
  DelayedScaling state({});
  const int x = state.Register("x", Fp8Format::kE4M3);
  const auto count = [&] {
    size_t values = 0;
    for (const NamedFloats& array : state.Save()) values += array.values.size();
    return values;
  };
  const size_t at_start = count();
  EXPECT_EQ(at_start, 16u + 1u);
  for (int step = 0; step < 1000; ++step) {
    state.RecordAmax(x, static_cast<float>(step));
    state.Update();
  }
  EXPECT_EQ(count(), at_start);
  EXPECT_EQ(state.Save()[0].name, "x.amax_history");
  EXPECT_EQ(state.Save()[1].name, "x.scale");
}

TEST(DelayedScalingTest, RefusesACheckpointThatDoesNotFitAndStaysAsItWas) {
  DelayedScaling state({.history_length = 2});
  const int x = state.Register("x", Fp8Format::kE4M3);
  state.RecordAmax(x, 7);
  state.Update();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const struct {
    std::vector<NamedFloats> arrays;
    std::string message;
  } cases[] = {
      {{}, "x.amax_history, which the checkpoint lacks"},
      {{{"x.amax_history", {0, 1}}}, "x.scale, which the checkpoint lacks"},
      {{{"x.amax_history", {0, 1, 2}}, {"x.scale", {1}}},
       "x.amax_history has 3 values in the checkpoint and 2 in this model"},
      {{{"x.amax_history", {0, 1}}, {"x.scale", {}}},
       "x.scale has 0 values in the checkpoint and 1 in this model"},
      {{{"x.amax_history", {0, 1}}, {"x.scale", {1}}, {"y.scale", {1}}},
       "y.scale, which this model lacks"},
      {{{"x.scale", {1}}, {"x.scale", {1}}}, "x.scale twice"},
      {{{"x.amax_history", {0, kNaN}}, {"x.scale", {1}}}, "x.amax_history[1] = nan"},
      {{{"x.amax_history", {0, 1}}, {"x.scale", {kNaN}}}, "x.scale[0] = nan"},
      {{{"x.amax_history", {0, 1}}, {"x.scale", {-2}}}, "x.scale[0] = -2"},
      {{{"x.amax_history", {0, 1}}, {"x.scale", {1e-44f}}}, "too small"},
  };
  for (const auto& c : cases) {
    const Status status = state.Load(c.arrays);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(Message(status).find(c.message), std::string::npos) << Message(status);
    EXPECT_EQ(state.scale(x), 64);
    EXPECT_EQ(HistoryOf(state, x), (std::vector<float>{0, 7}));
  }
}

}  // namespace
}  // namespace cria::model

// Numbers that are not finite (torchtitan 916, pocket-tts PR 262, pytorch 46849): one bad step
// poisoned weights and moments and rotated the good checkpoints out. Here an operation of the
// backend goes wrong at chosen steps.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "model/cpu/cpu_ops.h"
#include "model/forwarding_ops.h"
#include "model/precision.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/loop/train_loop.h"

namespace cria::trainer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

enum class Place {
  kForwardMatmul,   // the first product of the step
  kWeightGradient,  // the first product that adds to a gradient
  kNormOutput,      // a linear layer's input
};

// Writes `value` into one element of one result, in the steps of `steps` (from 1; one micro-batch a
// step). Also keeps what weights and moments were when each update began.
class FaultOps : public model::ForwardingOps {
 public:
  FaultOps(model::Ops* ops, Place place, float value, std::vector<int> steps)
      : ForwardingOps(ops), place_(place), value_(value), steps_(std::move(steps)) {}

  void EmbeddingForward(const model::EmbeddingForwardArgs& args) override {
    ++step_;
    armed_ = std::find(steps_.begin(), steps_.end(), step_) != steps_.end();
    ForwardingOps::EmbeddingForward(args);
  }
  void Matmul(const model::MatmulArgs& args) override {
    ForwardingOps::Matmul(args);
    if (args.accumulate ? place_ == Place::kWeightGradient : place_ == Place::kForwardMatmul) {
      Spoil(args.c);
    }
  }
  void RmsNormForward(const model::RmsNormForwardArgs& args) override {
    ForwardingOps::RmsNormForward(args);
    if (place_ == Place::kNormOutput) Spoil(args.y);
  }
  void AdamW(const model::AdamWArgs& args) override {
    if (update_steps.empty() || update_steps.back() != step_) {
      update_steps.push_back(step_);
      adam_steps.push_back(args.step);
    }
    before[step_] += Bytes(args.weight) + Bytes(args.m) + Bytes(args.v);
    ForwardingOps::AdamW(args);
    after[step_] += Bytes(args.weight) + Bytes(args.m) + Bytes(args.v);
  }

  std::vector<int> update_steps;             // steps that changed the weights
  std::vector<int64_t> adam_steps;           // the numbers of those updates
  std::map<int, std::string> before, after;  // weights and moments around each

 private:
  static std::string Bytes(const model::Tensor& x) {
    return {static_cast<const char*>(x.data()), static_cast<size_t>(x.bytes())};
  }
  void Spoil(const model::Tensor& x) {
    if (!armed_) return;
    armed_ = false;
    if (x.dtype() == model::DType::kF32) {
      x.f32()[1] = value_;
    } else {
      uint32_t bits;
      std::memcpy(&bits, &value_, sizeof(bits));
      x.bf16()[1].bits = static_cast<uint16_t>(bits >> 16);
    }
  }

  const Place place_;
  const float value_;
  const std::vector<int> steps_;
  int step_ = 0;
  bool armed_ = false;
};

struct FaultOutcome {
  TinyOutcome run;
  std::string log;
};

class TrainFaultsTest : public testing::Test {
 protected:
  TrainConfig Config(const std::string& precision) {
    TrainConfig config = TinyConfig(TinyData());
    config.precision = precision;
    config.train.micro_batch = config.train.batch;
    config.checkpoint.every = 1;
    return config;
  }
  FaultOutcome Run(const TrainConfig& config, FaultOps* ops) {
    testing::internal::CaptureStderr();
    FaultOutcome outcome;
    outcome.run = RunTiny(config, {.out_dir = FreshDir("faults"), .ops = ops});
    outcome.log = testing::internal::GetCapturedStderr();
    return outcome;
  }

  const std::unique_ptr<model::Ops> cpu_ = model::cpu::NewCpuOps();
};

// A safetensors file without its header, which names the step.
std::string TensorBytes(const std::string& file) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  return file.substr(8 + header_bytes);
}

std::vector<std::string> Fp8Names() {
  std::vector<std::string> names;
  for (const std::string& name : model::PrecisionNames()) {
    if (model::IsFp8(*model::PrecisionFromName(name))) names.push_back(name);
  }
  return names;
}

TEST_F(TrainFaultsTest, ABadStepIsSkippedNamedAndLeavesNoTrace) {
  for (const std::string& precision : model::PrecisionNames()) {
    for (const Place place : {Place::kForwardMatmul, Place::kWeightGradient}) {
      for (const float value : {kNaN, kInf}) {
        SCOPED_TRACE(StrCat(precision, " place ", static_cast<int>(place), " value ", value));
        FaultOps ops(cpu_.get(), place, value, {4, 6});
        TrainConfig config = Config(precision);
        config.checkpoint.every = 0;
        const FaultOutcome outcome = Run(config, &ops);
        ASSERT_TRUE(outcome.run.status.ok()) << outcome.run.status;
        EXPECT_EQ(outcome.run.summary.skipped_steps, 2);
        EXPECT_EQ(outcome.run.summary.steps, 10);
        // No update in steps 4 and 6, and the updates are numbered as if those had not been.
        EXPECT_EQ(ops.update_steps, (std::vector<int>{1, 2, 3, 5, 7, 8, 9, 10}));
        EXPECT_EQ(ops.adam_steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
        EXPECT_TRUE(ops.before[5] == ops.after[3]) << "weights or moments changed in step 4";
        EXPECT_TRUE(ops.before[7] == ops.after[5]) << "weights or moments changed in step 6";
        EXPECT_NE(outcome.log.find("step 4 skipped: "), std::string::npos) << outcome.log;
        EXPECT_NE(outcome.log.find("is not finite (1 of 5 in a row)"), std::string::npos);
        // The tied head's gradient is the first that a backward pass adds to.
        if (place == Place::kWeightGradient) {
          EXPECT_NE(outcome.log.find("gradient of model.embed_tokens.weight"), std::string::npos)
              << outcome.log;
        }
        ASSERT_EQ(outcome.run.metrics.size(), 10u);
        EXPECT_TRUE(ParseJson(outcome.run.metrics[3], "line").value()["loss"].is_null());
        EXPECT_FALSE(ParseJson(outcome.run.metrics[4], "line").value()["loss"].is_null());
        EXPECT_TRUE(LoadCheckpoint(outcome.run.summary.checkpoint_dir).ok());
      }
    }
  }
}

TEST_F(TrainFaultsTest, TheFirstBadGradientIsNamedByItsParameter) {
  // Spoils the n-th product that adds to a gradient: the backward pass goes from the head down.
  class NthGradientOps : public model::ForwardingOps {
   public:
    NthGradientOps(model::Ops* ops, int n) : ForwardingOps(ops), n_(n) {}
    void Matmul(const model::MatmulArgs& args) override {
      ForwardingOps::Matmul(args);
      if (args.accumulate && n_-- == 0) args.c.f32()[0] = kNaN;
    }

   private:
    int n_;
  };
  TrainConfig config = Config("fp32");
  config.steps = 2;
  for (const auto& [n, name] : {std::pair(1, "model.layers.1.mlp.down_proj.weight"),
                                std::pair(2, "model.layers.1.mlp.gate_proj.weight"),
                                std::pair(3, "model.layers.1.self_attn.o_proj.weight"),
                                std::pair(8, "model.layers.0.self_attn.q_proj.weight")}) {
    NthGradientOps ops(cpu_.get(), n);
    testing::internal::CaptureStderr();
    const TinyOutcome outcome = RunTiny(config, {.out_dir = FreshDir("nth"), .ops = &ops});
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(outcome.summary.skipped_steps, 1);
    EXPECT_NE(log.find(StrCat("step 1 skipped: gradient of ", name, " is not finite")),
              std::string::npos)
        << log;
  }
}

// Rounding to 8 bits saturates an infinity: loss and gradients stay finite, and only the operand
// tells.
TEST_F(TrainFaultsTest, AnInfiniteFp8OperandIsNoticed) {
  for (const std::string& precision : Fp8Names()) {
    SCOPED_TRACE(precision);
    FaultOps ops(cpu_.get(), Place::kNormOutput, kInf, {3});
    const FaultOutcome outcome = Run(Config(precision), &ops);
    ASSERT_TRUE(outcome.run.status.ok()) << outcome.run.status;
    EXPECT_EQ(outcome.run.summary.skipped_steps, 1);
    EXPECT_NE(
        outcome.log.find("step 3 skipped: FP8 operand model.layers.0.qkv.input is not finite"),
        std::string::npos)
        << outcome.log;
    EXPECT_TRUE(ops.before[4] == ops.after[2]);
  }
}

// Scales too must be what they were: the state saved after a bad step is that of the step before.
TEST_F(TrainFaultsTest, Fp8ScalesForgetABadStep) {
  TrainConfig config = Config("fp8_delayed");
  config.steps = 5;  // the last step is bad: it is saved at the end, as the run's state
  FaultOps ops(cpu_.get(), Place::kForwardMatmul, kNaN, {5});
  const FaultOutcome outcome = Run(config, &ops);
  ASSERT_TRUE(outcome.run.status.ok()) << outcome.run.status;
  const std::string out = DirName(DirName(outcome.run.summary.checkpoint_dir));
  EXPECT_EQ(outcome.run.summary.checkpoint_dir, StepDir(out, 5));
  const CheckpointBytes before = ReadCheckpointBytes(StepDir(out, 4));
  EXPECT_EQ(TensorBytes(outcome.run.last.model), TensorBytes(before.model));
  EXPECT_EQ(TensorBytes(outcome.run.last.optimizer), TensorBytes(before.optimizer));
  EXPECT_EQ(TensorBytes(outcome.run.last.state), TensorBytes(before.state));
  EXPECT_NE(TensorBytes(before.state), TensorBytes(ReadCheckpointBytes(StepDir(out, 3)).state));
}

TEST_F(TrainFaultsTest, ABadWeightIsNamedBeforeWhatFollowsFromIt) {
  // An update that goes wrong: weights are bad from step 3 on.
  class BadUpdateOps : public model::ForwardingOps {
   public:
    using ForwardingOps::ForwardingOps;
    void AdamW(const model::AdamWArgs& args) override {
      ForwardingOps::AdamW(args);
      if (args.step == 2) args.weight.f32()[7] = kNaN;
    }
  };
  BadUpdateOps ops(cpu_.get());
  testing::internal::CaptureStderr();
  const TinyOutcome outcome =
      RunTiny(Config("fp32"), {.out_dir = FreshDir("bad_weight"), .ops = &ops});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_NE(log.find("step 3 skipped: weight model.embed_tokens.weight is not finite"),
            std::string::npos)
      << log;
}

TEST_F(TrainFaultsTest, KInARowEndTheRunAndTheGoodCheckpointStays) {
  TrainConfig config = Config("bf16");
  config.train.max_bad_steps = 3;
  config.checkpoint.keep = 1;
  FaultOps ops(cpu_.get(), Place::kForwardMatmul, kNaN, {3, 4, 6, 7, 8, 9});
  const FaultOutcome outcome = Run(config, &ops);
  const std::string out = JoinPath(DirName(FreshDir("x")), "faults");
  EXPECT_EQ(outcome.run.status.code(), StatusCode::kInternal);
  EXPECT_EQ(Message(outcome.run.status),
            StrCat("stopped at step 8 after 3 steps in a row that were not finite (the last: the "
                   "loss); the last good checkpoint is ",
                   StepDir(out, 5)));
  EXPECT_EQ(ExitCode(outcome.run.status), 1);
  // keep = 1, and no checkpoint of a bad step took the good one's place.
  EXPECT_EQ(ListDir(JoinPath(out, "checkpoints")).value(), std::vector<std::string>{"step_5"});
  ASSERT_TRUE(LoadCheckpoint(StepDir(out, 5)).ok());
  // With the cause gone, the run goes on from there.
  const TinyOutcome resumed = RunTiny(config, {.out_dir = out, .resume = StepDir(out, 5)});
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_EQ(resumed.metrics.size(), 10u);
}

// The count of bad steps in a row is part of the state: a resume must not forget it.
TEST_F(TrainFaultsTest, TheCountInARowOutlivesAStop) {
  TrainConfig config = Config("fp32");
  config.train.max_bad_steps = 3;
  std::atomic<int> stop = 0;
  class StopAfterOps : public FaultOps {
   public:
    StopAfterOps(model::Ops* ops, std::atomic<int>* stop)
        : FaultOps(ops, Place::kForwardMatmul, kNaN, {3, 4}), stop_(stop) {}
    void EmbeddingForward(const model::EmbeddingForwardArgs& args) override {
      FaultOps::EmbeddingForward(args);
      if (++step_ == 4) *stop_ = 1;
    }

   private:
    std::atomic<int>* const stop_;
    int step_ = 0;
  };
  StopAfterOps ops(cpu_.get(), &stop);
  const std::string out = FreshDir("count");
  const TinyOutcome stopped = RunTiny(config, {.out_dir = out, .ops = &ops, .stop = &stop});
  ASSERT_TRUE(stopped.status.ok()) << stopped.status;
  EXPECT_EQ(stopped.summary.checkpoint_dir, StepDir(out, 4));
  FaultOps worse(cpu_.get(), Place::kForwardMatmul, kNaN, {1});
  const TinyOutcome ended =
      RunTiny(config, {.out_dir = out, .resume = StepDir(out, 4), .ops = &worse});
  EXPECT_NE(Message(ended.status).find("stopped at step 5 after 3 steps in a row"),
            std::string::npos)
      << ended.status;
}

}  // namespace
}  // namespace cria::trainer

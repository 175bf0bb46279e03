// Stopping and going on: equal bits at every step, and the bug reports of other trainers.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numbers>

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

std::vector<std::string> LinesAfter(const std::vector<std::string>& lines, int64_t step) {
  return {lines.begin() + step, lines.end()};
}

// A copy of a run as it was right after `step`: later checkpoints are not there, metrics may be.
std::string CopyRunAt(const std::string& out_dir, int64_t step, int64_t num_steps) {
  const std::string copy = FreshDir(StrCat("copy_at_", step));
  std::filesystem::copy(out_dir, copy, std::filesystem::copy_options::recursive);
  for (int64_t later = step + 1; later <= num_steps; ++later) {
    EXPECT_TRUE(RemoveAll(StepDir(copy, later)).ok());
  }
  return copy;
}

class ResumeTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, ResumeTest, testing::ValuesIn(model::PrecisionNames()),
                         [](const auto& info) { return info.param; });

// torchtitan 809, TransformerEngine 982, finetrainers 246, KempnerForge 114: a loss that jumps, FP8
// scales that are lost, moments that are not the same bits.
TEST_P(ResumeTest, GoesOnWithTheSameBitsFromAnyStep) {
  TrainConfig config = TinyConfig(TinyData());
  config.precision = GetParam();
  config.checkpoint.every = 1;
  config.train.eval_every = 3;
  config.train.ramp_batch = {2, 3};
  config.train.ramp_until = {2, 5};
  config.train.micro_batch = 2;
  const std::string whole_dir = FreshDir("whole");
  const TinyOutcome whole = RunTiny(config, {.out_dir = whole_dir});
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (const int64_t step : {1, 2, 4, 9}) {
    const std::string resumed_dir = FreshDir("resumed");
    const TinyOutcome resumed =
        RunTiny(config, {.out_dir = resumed_dir, .resume = StepDir(whole_dir, step)});
    ASSERT_TRUE(resumed.status.ok()) << resumed.status;
    EXPECT_EQ(resumed.metrics, LinesAfter(whole.metrics, step)) << "from step " << step;
    EXPECT_TRUE(resumed.last == whole.last) << "from step " << step;
    // Moments and FP8 state of the very next step too, not only where it ends.
    EXPECT_TRUE(ReadCheckpointBytes(StepDir(resumed_dir, step + 1)) ==
                ReadCheckpointBytes(StepDir(whole_dir, step + 1)));
  }
}

// TransformerEngine 231: checkpoints grew with the steps.
TEST_P(ResumeTest, CheckpointsHaveTheSameSizeAtEachStep) {
  TrainConfig config = TinyConfig(TinyData());
  config.precision = GetParam();
  config.steps = 24;  // more than FP8's history
  config.checkpoint.every = 8;
  const std::string out = FreshDir("sizes");
  ASSERT_TRUE(RunTiny(config, {.out_dir = out}).status.ok());
  const CheckpointBytes first = ReadCheckpointBytes(StepDir(out, 8));
  for (const int64_t step : {16, 24}) {
    const CheckpointBytes later = ReadCheckpointBytes(StepDir(out, step));
    // But for the digits of the step in the header, which is padded to eights.
    EXPECT_LE(later.model.size() - first.model.size(), 8u) << "step " << step;
    EXPECT_LE(later.optimizer.size() - first.optimizer.size(), 8u) << "step " << step;
    EXPECT_LE(later.state.size() - first.state.size(), 8u) << "step " << step;
  }
  EXPECT_EQ(first.state.size() > 1000, GetParam() == "fp8_delayed") << first.state.size();
}

TEST(TrainResumeTest, InTheSameFolderEachStepIsLoggedOnce) {
  TrainConfig config = TinyConfig(TinyData());
  config.checkpoint.every = 1;
  const std::string out = FreshDir("once");
  const TinyOutcome whole = RunTiny(config, {.out_dir = out});
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (const int64_t step : {1, 5, 9, 10}) {
    // Lines up to step 10 are there already, as after a kill between a line and its checkpoint.
    const std::string copy = CopyRunAt(out, step, 10);
    const TinyOutcome resumed = RunTiny(config, {.out_dir = copy, .resume = StepDir(copy, step)});
    ASSERT_TRUE(resumed.status.ok()) << resumed.status;
    EXPECT_EQ(resumed.metrics, whole.metrics);
    EXPECT_TRUE(ReadCheckpointBytes(StepDir(copy, 10)) == whole.last);
  }
}

TEST(TrainResumeTest, AStopFlagSavesThatStepAndTheRestIsTheSame) {
  TrainConfig config = TinyConfig(TinyData());
  const TinyOutcome whole = RunTiny(config, {.out_dir = FreshDir("whole")});
  std::atomic<int> stop = 0;
  // Sets the flag in the middle of step 4.
  class StoppingOps : public model::ForwardingOps {
   public:
    StoppingOps(model::Ops* ops, std::atomic<int>* stop) : ForwardingOps(ops), stop_(stop) {}
    void AdamW(const model::AdamWArgs& args) override {
      if (args.step == 4) *stop_ = 1;
      ForwardingOps::AdamW(args);
    }

   private:
    std::atomic<int>* const stop_;
  };
  const std::unique_ptr<model::Ops> cpu = model::cpu::NewCpuOps();
  StoppingOps ops(cpu.get(), &stop);
  const std::string out = FreshDir("stopped");
  const TinyOutcome stopped = RunTiny(config, {.out_dir = out, .ops = &ops, .stop = &stop});
  ASSERT_TRUE(stopped.status.ok()) << stopped.status;
  EXPECT_TRUE(stopped.summary.stopped);
  EXPECT_EQ(stopped.summary.steps, 4);
  EXPECT_EQ(stopped.summary.checkpoint_dir, StepDir(out, 4));
  const TinyOutcome resumed = RunTiny(config, {.out_dir = out, .resume = StepDir(out, 4)});
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_FALSE(resumed.summary.stopped);
  EXPECT_EQ(resumed.metrics, whole.metrics);
  EXPECT_TRUE(resumed.last == whole.last);
}

// The tokens that training forward passes read.
class TokenLogOps : public model::ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void EmbeddingForward(const model::EmbeddingForwardArgs& args) override {
    log.insert(log.end(), args.tokens.i32(), args.tokens.i32() + args.tokens.num_elements());
    ForwardingOps::EmbeddingForward(args);
  }
  std::vector<int32_t> log;
};

// entrenar 294: the loader began at the first shard again. verl 7401: a run saved at the last batch
// of an epoch skipped the next epoch.
TEST(TrainResumeTest, ReadsTheSameTokensAlsoAtAnEpochsEnd) {
  TrainConfig config = TinyConfig(TinyData());
  const TokenDataset dataset = TokenDataset::Open(config.data.path, "train").value();
  const BatchStream stream(&dataset, {.seq = 32, .seed = 1, .shuffle = true});
  const int64_t epoch = stream.samples_per_epoch();
  // Three steps an epoch, or nearly so where three does not divide it: both are walked.
  config.train.eval_samples = 1;
  for (const int64_t batch : {epoch, (epoch + 2) / 3}) {
    config.train.batch = batch;
    config.train.micro_batch = 16;
    config.checkpoint.every = 1;
    config.steps = batch == epoch ? 3 : 7;
    const std::unique_ptr<model::Ops> cpu = model::cpu::NewCpuOps();
    TokenLogOps whole_ops(cpu.get());
    const std::string out = FreshDir("tokens");
    const TinyOutcome whole = RunTiny(config, {.out_dir = out, .ops = &whole_ops});
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    for (int64_t step = 1; step < config.steps; ++step) {
      TokenLogOps ops(cpu.get());
      const TinyOutcome resumed =
          RunTiny(config, {.out_dir = FreshDir("rest"), .resume = StepDir(out, step), .ops = &ops});
      ASSERT_TRUE(resumed.status.ok()) << resumed.status;
      const auto begin = static_cast<int64_t>(whole_ops.log.size() - ops.log.size());
      EXPECT_EQ(begin, step * batch * 32);
      EXPECT_TRUE(std::equal(ops.log.begin(), ops.log.end(), whole_ops.log.begin() + begin))
          << "from step " << step << " of batches of " << batch;
      EXPECT_TRUE(resumed.last == whole.last);
    }
  }
}

// What AdamW was called with.
class AdamLogOps : public model::ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void AdamW(const model::AdamWArgs& args) override {
    calls.push_back({args.step, args.lr, args.beta1, args.beta2});
    ForwardingOps::AdamW(args);
  }
  struct Call {
    int64_t step;
    float lr, beta1, beta2;
  };
  std::vector<Call> calls;
};

// torchtitan PR 275, nanotron PR 245: the rate began again. slime PR 1547, miles PR 1627: the
// scheduler was stepped twice. gpt-neox 1373, Megatron-Bridge 5399: warm-up a step late or at 0.
TEST(TrainResumeTest, TheRateIsTheClosedFormsOnEitherSide) {
  TrainConfig config = TinyConfig(TinyData());
  config.checkpoint.every = 1;
  config.train.warmup = 4;
  const std::string out = FreshDir("rate");
  ASSERT_TRUE(RunTiny(config, {.out_dir = out}).status.ok());
  for (const int64_t step : {1, 3, 4, 7}) {  // inside, at the end of, and after the warm-up
    const std::unique_ptr<model::Ops> cpu = model::cpu::NewCpuOps();
    AdamLogOps ops(cpu.get());
    ASSERT_TRUE(
        RunTiny(config,
                {.out_dir = FreshDir("rate_resumed"), .resume = StepDir(out, step), .ops = &ops})
            .status.ok());
    int64_t expected_step = step;
    for (const AdamLogOps::Call& call : ops.calls) {
      // Several calls a step (ranges with and without decay), all with its number.
      if (call.step != expected_step) ++expected_step;
      ASSERT_EQ(call.step, expected_step);
      const auto s = static_cast<double>(call.step);
      const double lr = s <= 4
                            ? 0.01 * s / 4
                            : 0.001 + 0.009 * 0.5 * (1 + std::cos(std::numbers::pi * (s - 4) / 6));
      EXPECT_FLOAT_EQ(call.lr, static_cast<float>(lr)) << "step " << call.step;
    }
    EXPECT_EQ(ops.calls.front().step, step + 1);
    EXPECT_EQ(ops.calls.back().step, 10);
  }
}

constexpr int kFollowed = 40;  // an element of the first range

// tt-metal 53212: powers of beta were computed before the betas were restored. Here they are never
// stored: a resumed run uses its configuration's betas and the count of updates.
TEST(TrainResumeTest, OtherBetasCountFromTheResumedStep) {
  TrainConfig config = TinyConfig(TinyData());
  config.checkpoint.every = 1;
  const std::string out = FreshDir("betas");
  ASSERT_TRUE(RunTiny(config, {.out_dir = out}).status.ok());
  config.train.beta1 = 0.5;
  config.train.beta2 = 0.75;
  config.train.weight_decay = 0;
  config.train.clip_norm = 0;
  const std::unique_ptr<model::Ops> cpu = model::cpu::NewCpuOps();
  // Follows one element of the first range through the first resumed update.
  class FollowOps : public model::ForwardingOps {
   public:
    using ForwardingOps::ForwardingOps;
    void AdamW(const model::AdamWArgs& args) override {
      if (done) return ForwardingOps::AdamW(args);
      const double g = args.grad.f32()[kFollowed];
      const double m = 0.5 * args.m.f32()[kFollowed] + 0.5 * g;
      const double v = 0.75 * args.v.f32()[kFollowed] + 0.25 * g * g;
      const double m_hat = m / (1 - std::pow(0.5, 4));
      const double v_hat = v / (1 - std::pow(0.75, 4));
      want = args.weight.f32()[kFollowed] - args.lr * m_hat / (std::sqrt(v_hat) + 1e-8);
      ForwardingOps::AdamW(args);
      got = args.weight.f32()[kFollowed];
      gradient = g;
      done = true;
    }
    bool done = false;
    double want = 0, got = 0, gradient = 0;
  };
  FollowOps ops(cpu.get());
  ASSERT_TRUE(
      RunTiny(config, {.out_dir = FreshDir("betas2"), .resume = StepDir(out, 3), .ops = &ops})
          .status.ok());
  EXPECT_NE(ops.gradient, 0);
  EXPECT_NEAR(ops.got, ops.want, 1e-7);
}

// Megatron-LM PR 6920: a run went on from another model, without an error.
TEST(TrainResumeTest, RefusesAnotherModelOtherDataOtherBatches) {
  const TrainConfig config = [] {
    TrainConfig c = TinyConfig(TinyData());
    c.checkpoint.every = 5;
    return c;
  }();
  const std::string out = FreshDir("refuses");
  ASSERT_TRUE(RunTiny(config, {.out_dir = out}).status.ok());
  const auto error = [&](const std::function<void(TrainConfig*)>& change) {
    TrainConfig other = config;
    change(&other);
    const std::string dir = FreshDir("refused");
    const TinyOutcome outcome = RunTiny(other, {.out_dir = dir, .resume = StepDir(out, 5)});
    EXPECT_FALSE(outcome.status.ok());
    EXPECT_TRUE(ListDir(dir).value().empty()) << "a refused resume must write nothing";
    return Message(outcome.status);
  };
  const std::string where = StepDir(out, 5) + ": ";
  EXPECT_EQ(error([](TrainConfig* c) { c->seed = 2; }), where + "its seed is 1, the job's 2");
  // The same shapes, another model.
  EXPECT_EQ(error([](TrainConfig* c) { c->model.heads = 8, c->model.kv_heads = 4; }),
            where + "its model has \"heads: 4\", the job's \"heads: 8\"");
  EXPECT_EQ(error([](TrainConfig* c) { c->model.rope_theta = 20000; }),
            where + "its model has \"rope_theta: 10000\", the job's \"rope_theta: 20000\"");
  EXPECT_NE(error([](TrainConfig* c) { c->model.layers = 3; }).find("\"layers: 3\""),
            std::string::npos);
  EXPECT_EQ(error([](TrainConfig* c) { c->train.batch = 8; }),
            where + "30 sequences after 5 steps; the job's batches make it 40");
  EXPECT_EQ(error([](TrainConfig* c) { c->train.seq = 16; }),
            where + "960 tokens after 30 sequences; the job's train.seq is 16");
  EXPECT_NE(error([](TrainConfig* c) { c->data.shuffle = false; }).find("trained on other data"),
            std::string::npos);
  EXPECT_NE(error([](TrainConfig* c) { c->precision = "fp8_delayed"; }).find("fp8."),
            std::string::npos);
}

TEST(TrainResumeTest, OtherDataOfTheSameSizeIsNoticed) {
  TrainConfig config = TinyConfig(TinyData());
  config.checkpoint.every = 5;
  const std::string out = FreshDir("data_a");
  ASSERT_TRUE(RunTiny(config, {.out_dir = out}).status.ok());
  // The same folder elsewhere is the same data ...
  const std::string moved = JoinPath(FreshDir("data_moved"), "x");
  std::filesystem::copy(config.data.path, moved, std::filesystem::copy_options::recursive);
  config.data.path = moved;
  EXPECT_TRUE(
      RunTiny(config, {.out_dir = FreshDir("data_b"), .resume = StepDir(out, 5)}).status.ok());
  // ... and one token less is not.
  Manifest manifest = ReadManifest(moved).value();
  manifest.tokenizer_fingerprint[0] = manifest.tokenizer_fingerprint[0] == '0' ? '1' : '0';
  ASSERT_TRUE(WriteManifest(moved, manifest).ok());
  EXPECT_NE(
      Message(RunTiny(config, {.out_dir = FreshDir("data_c"), .resume = StepDir(out, 5)}).status)
          .find("trained on other data"),
      std::string::npos);
}

// A run that goes on from an older checkpoint leaves the later ones as another branch, and the
// next `--resume auto` must not take those for its own.
TEST(TrainResumeTest, SetsAsideTheCheckpointsOfTheBranchItLeaves) {
  TrainConfig config = TinyConfig(TinyData());
  config.checkpoint.every = 2;
  const std::string out = FreshDir("branch");
  ASSERT_TRUE(RunTiny(config, {.out_dir = out}).status.ok());
  const CheckpointBytes old_8 = ReadCheckpointBytes(StepDir(out, 8));
  config.train.weight_decay = 0.5;  // another branch indeed
  config.steps = 6;
  const TinyOutcome branch = RunTiny(config, {.out_dir = out, .resume = StepDir(out, 4)});
  ASSERT_TRUE(branch.status.ok()) << branch.status;
  EXPECT_EQ(FindNewestVerified(JoinPath(out, "checkpoints"), nullptr).value(), StepDir(out, 6));
  EXPECT_EQ(ListDir(JoinPath(out, "checkpoints")).value(),
            (std::vector<std::string>{"step_2", "step_4", "step_6"}));
  EXPECT_EQ(ListDir(JoinPath(out, "checkpoints_replaced")).value(),
            (std::vector<std::string>{"step_10", "step_6", "step_8"}));
  EXPECT_TRUE(ReadCheckpointBytes(JoinPath(out, "checkpoints_replaced/step_8")) == old_8);
  EXPECT_EQ(branch.metrics.size(), 6u);

  // Again: names that are taken get a number.
  ASSERT_TRUE(RunTiny(config, {.out_dir = out, .resume = StepDir(out, 4)}).status.ok());
  EXPECT_TRUE(Exists(JoinPath(out, "checkpoints_replaced/step_6.2")));
}

TEST(TrainResumeTest, ADamagedNewerCheckpointIsSetAsideToo) {
  TrainConfig config = TinyConfig(TinyData());
  config.checkpoint.every = 3;
  const std::string out = FreshDir("damaged");
  const TinyOutcome whole = RunTiny(config, {.out_dir = out});
  for (const int64_t step : {9, 10}) {
    const std::string file = JoinPath(StepDir(out, step), "optimizer.safetensors");
    std::string bytes = ReadFile(file).value();
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_TRUE(WriteFileAtomic(file, bytes).ok());
  }
  std::vector<std::string> rejected;
  const std::string found = FindNewestVerified(JoinPath(out, "checkpoints"), &rejected).value();
  EXPECT_EQ(found, StepDir(out, 6));
  EXPECT_EQ(rejected.size(), 2u);
  const TinyOutcome resumed = RunTiny(config, {.out_dir = out, .resume = found});
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_EQ(resumed.metrics, whole.metrics);
  EXPECT_TRUE(resumed.last == whole.last);
}

}  // namespace
}  // namespace cria::trainer

// trainer/loop/train_loop.h: equal bits, accumulation, what is logged, what a step may allocate.

#include "trainer/loop/train_loop.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <numbers>

#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "model/cpu/cpu_ops.h"
#include "model/forwarding_ops.h"
#include "model/precision.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/loop/memory.h"

namespace cria::trainer {
namespace {

double Value(const std::string& line, const char* key) {
  return ParseJson(line, "metrics line").value()[key].get<double>();
}

class PrecisionTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, PrecisionTest, testing::ValuesIn(model::PrecisionNames()),
                         [](const auto& info) { return info.param; });

TEST_P(PrecisionTest, SameSeedSameBitsAndAnyThreadsToo) {
  TrainConfig config = TinyConfig(TinyData());
  config.precision = GetParam();
  config.train.eval_every = 4;
  SetNumThreads(2);
  const TinyOutcome first = RunTiny(config, {.out_dir = FreshDir("first")});
  ASSERT_TRUE(first.status.ok()) << first.status;
  const TinyOutcome second = RunTiny(config, {.out_dir = FreshDir("second")});
  SetNumThreads(1);
  const TinyOutcome one_thread = RunTiny(config, {.out_dir = FreshDir("one_thread")});
  SetNumThreads(2);
  ASSERT_EQ(first.metrics.size(), 10u);
  EXPECT_EQ(first.metrics, second.metrics);
  EXPECT_EQ(first.metrics, one_thread.metrics);
  EXPECT_TRUE(first.last == second.last);
  EXPECT_TRUE(first.last == one_thread.last);

  // The comparison can fail: another seed is another run.
  config.seed = 2;
  const TinyOutcome other = RunTiny(config, {.out_dir = FreshDir("other")});
  EXPECT_NE(first.metrics, other.metrics);
  EXPECT_NE(first.last.model, other.last.model);
}

TEST_P(PrecisionTest, TheLossFalls) {
  TrainConfig config = TinyConfig(TinyData());
  config.precision = GetParam();
  config.steps = 40;
  const TinyOutcome outcome = RunTiny(config, {.out_dir = FreshDir("falls")});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_NEAR(outcome.summary.first_loss, std::log(300.0), 0.1);
  EXPECT_LT(outcome.summary.last_loss, 0.6 * outcome.summary.first_loss);
  ASSERT_TRUE(outcome.summary.val_loss.has_value());
  EXPECT_LT(*outcome.summary.val_loss, 0.6 * outcome.summary.first_loss);
}

TEST(TrainLoopTest, LogsEachStepWithItsRateTokensAndValidation) {
  TrainConfig config = TinyConfig(TinyData());
  config.steps = 12;
  config.train.warmup = 4;
  config.train.lr = 0.02;
  config.train.min_lr_ratio = 0.1;
  config.train.eval_every = 5;
  const TinyOutcome outcome = RunTiny(config, {.out_dir = FreshDir("logs")});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  ASSERT_EQ(outcome.metrics.size(), 12u);
  for (int step = 1; step <= 12; ++step) {
    const Json line = ParseJson(outcome.metrics[static_cast<size_t>(step) - 1], "line").value();
    EXPECT_EQ(line["step"], step);
    EXPECT_EQ(line["tokens"], step * 6 * 32);
    const double progress = (step - 4) / 8.0;
    const double lr = step <= 4 ? 0.02 * step / 4
                                : 0.002 + 0.018 * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    EXPECT_NEAR(line["lr"].get<double>(), lr, 1e-15) << "step " << step;
    EXPECT_GT(line["grad_norm"].get<double>(), 0);
    EXPECT_EQ(line.contains("val_loss"), step == 5 || step == 10 || step == 12) << "step " << step;
  }
}

TEST(TrainLoopTest, WritesTheResolvedConfiguration) {
  TrainConfig config = TinyConfig(TinyData());
  config.steps = 1;
  const std::string out = FreshDir("resolved");
  ASSERT_TRUE(RunTiny(config, {.out_dir = out}).status.ok());
  const StatusOr<TrainConfig> again = LoadTrainConfig(JoinPath(out, "config.yaml"), {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(WriteTrainConfig(*again), WriteTrainConfig(config));
}

// transformers PR 34191, torchtune PR 1875, nanochat PR 59: accumulation averaged the means of its
// micro-batches, so that a token in a short one weighed more.
TEST(TrainLoopTest, AccumulationIsOneBigBatchForUnequalTokenCounts) {
  TrainConfig config = TinyConfig(TinyData());
  config.train.batch = 6;
  std::vector<TinyOutcome> outcomes;
  for (const int64_t micro_batch : {6, 4, 1}) {
    config.train.micro_batch = micro_batch;
    outcomes.push_back(RunTiny(config, {.out_dir = FreshDir(StrCat("micro_", micro_batch))}));
    ASSERT_TRUE(outcomes.back().status.ok()) << outcomes.back().status;
  }
  for (size_t i = 1; i < outcomes.size(); ++i) {
    for (size_t step = 0; step < 10; ++step) {
      const std::string& whole = outcomes[0].metrics[step];
      const std::string& parts = outcomes[i].metrics[step];
      // The sums run in another order; ten steps of it.
      EXPECT_NEAR(Value(parts, "loss") / Value(whole, "loss"), 1, 1e-5) << "step " << step + 1;
      EXPECT_NEAR(Value(parts, "grad_norm") / Value(whole, "grad_norm"), 1, 1e-4);
    }
  }

  // The mean of the rows' means is another number, so the test can fail.
  const TokenDataset dataset = TokenDataset::Open(config.data.path, "train").value();
  const BatchStream stream(&dataset, {.seq = 32, .seed = 1, .shuffle = true});
  const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  model::Llama model(config.model, config.LlamaOptions(), ops.get());
  model::InitializeParameters(model.layout(), 1, model.weights());
  model.WeightsChanged();
  double sum = 0, mean_of_means = 0;
  int64_t num_valid = 0;
  for (int64_t sample = 0; sample < 6; ++sample) {
    Batch batch;
    stream.Read(sample, 1, &batch);
    const auto view = [](std::vector<int32_t>& x) {
      return model::Tensor(x.data(), model::DType::kI32, {static_cast<int64_t>(x.size())});
    };
    const model::LossSum loss = model.Evaluate({.batch = 1,
                                                .time = 32,
                                                .tokens = view(batch.tokens_BT),
                                                .targets = view(batch.targets_BT),
                                                .positions = view(batch.positions_BT),
                                                .doc_start = view(batch.doc_start_BT)});
    sum += loss.sum;
    num_valid += loss.num_valid;
    mean_of_means += loss.sum / static_cast<double>(loss.num_valid) / 6;
  }
  const double first_loss = Value(outcomes[0].metrics[0], "loss");
  EXPECT_NEAR(sum / static_cast<double>(num_valid) / first_loss, 1, 1e-6);
  EXPECT_GT(std::abs(mean_of_means / first_loss - 1), 1e-5);
}

TEST(TrainLoopTest, ARampTakesItsBatchesOneAfterAnother) {
  TrainConfig config = TinyConfig(TinyData());
  config.train.ramp_batch = {2, 3};
  config.train.ramp_until = {2, 5};
  config.train.micro_batch = 2;
  const TinyOutcome outcome = RunTiny(config, {.out_dir = FreshDir("ramp")});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  int64_t samples = 0;
  for (int step = 1; step <= 10; ++step) {
    samples += step <= 2 ? 2 : step <= 5 ? 3 : 6;
    EXPECT_EQ(Value(outcome.metrics[static_cast<size_t>(step) - 1], "tokens"),
              static_cast<double>(samples * 32));
  }
}

// Counts the targets that the loss leaves out, by forward pass.
class MaskOps : public model::ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void EmbeddingForward(const model::EmbeddingForwardArgs& args) override {
    num_masked.push_back(0);
    ForwardingOps::EmbeddingForward(args);
  }
  void CrossEntropy(const model::CrossEntropyArgs& args) override {
    for (int64_t i = 0; i < args.targets.num_elements(); ++i) {
      num_masked.back() += args.targets.i32()[i] < 0;
    }
    ForwardingOps::CrossEntropy(args);
  }
  std::vector<int> num_masked;
};

// Megatron-LM 1298: a loss mask that was kept between steps was changed in place, and its sum only
// fell.
TEST(TrainLoopTest, TheSumOfTheLossMaskIsTheSameEachEpoch) {
  TrainConfig config = TinyConfig(TinyData());
  const TokenDataset dataset = TokenDataset::Open(config.data.path, "train").value();
  const BatchStream stream(&dataset, {.seq = 32, .seed = 1, .shuffle = true});
  config.train.batch = config.train.micro_batch = stream.samples_per_epoch();
  config.steps = 6;
  const std::unique_ptr<model::Ops> cpu = model::cpu::NewCpuOps();
  MaskOps ops(cpu.get());
  ASSERT_TRUE(RunTiny(config, {.out_dir = FreshDir("mask"), .ops = &ops}).status.ok());
  ops.num_masked.resize(6);  // without the evaluation at the end
  EXPECT_GT(ops.num_masked[0], 0);
  EXPECT_EQ(ops.num_masked, std::vector<int>(6, ops.num_masked[0]));
}

// Memory in use at the start of each forward pass.
class MemoryOps : public model::ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void EmbeddingForward(const model::EmbeddingForwardArgs& args) override {
    const struct mallinfo2 info = mallinfo2();
    heap.push_back(static_cast<int64_t>(info.uordblks + info.hblkhd));
    resident.push_back(UsedMemoryBytes());
    ForwardingOps::EmbeddingForward(args);
  }
  std::vector<int64_t> heap, resident;
};

TEST_P(PrecisionTest, AllocatesNothingAfterTheFirstSteps) {
  TrainConfig config = TinyConfig(TinyData());
  config.precision = GetParam();
  config.steps = 60;
  config.train.micro_batch = 6;
  const std::unique_ptr<model::Ops> cpu = model::cpu::NewCpuOps();
  MemoryOps ops(cpu.get());
  ops.heap.reserve(1000);
  ops.resident.reserve(1000);
  ASSERT_TRUE(RunTiny(config, {.out_dir = FreshDir("memory"), .ops = &ops}).status.ok());
  // Step 1 makes the backend's scratch and the strings grow to their size. Lists of a step are made
  // anew, so that a few hundred bytes come and go; a leak of one would be over this at once.
  for (size_t step = 10; step < 60; ++step) {
    EXPECT_LE(ops.heap[step] - ops.heap[9], 1024) << "step " << step + 1;
  }
  EXPECT_LE(ops.resident[59] - ops.resident[9], 256 << 10);
}

TEST(TrainLoopTest, RefusesAVocabularyUnderTheTokenizers) {
  TrainConfig config = TinyConfig(TinyData());
  config.model.vocab = 299;
  const TinyOutcome outcome = RunTiny(config, {.out_dir = FreshDir("vocab")});
  EXPECT_EQ(outcome.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(outcome.status), "model.vocab: 299 is under the tokenizer's 300");
  EXPECT_FALSE(Exists(JoinPath(FreshDir("vocab"), "config.yaml")));
}

}  // namespace
}  // namespace cria::trainer

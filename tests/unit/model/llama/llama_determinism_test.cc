// Bits that must be equal, at every precision: run to run, for every number of threads, for every
// recomputation policy, between training and evaluation, and of a document whose neighbour changes.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "model/llama/llama.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

class LlamaDeterminismTest : public testing::TestWithParam<Precision> {
 protected:
  ~LlamaDeterminismTest() override { SetNumThreads(num_threads_); }

  LlamaOptions Options(Recompute recompute = Recompute::kNone) const {
    return {.precision = GetParam(), .recompute = recompute, .max_batch = 2, .max_time = 70};
  }

  // Losses, gradients and FP8 state after three steps that change the weights.
  struct Trace {
    std::vector<double> losses;
    std::vector<float> gradients;
    std::vector<std::vector<float>> state;
    bool operator==(const Trace&) const = default;
  };
  static Trace Train(const LlamaConfig& config, const LlamaOptions& options) {
    TestModel model(config, options, 1, 4);
    Trace trace;
    for (uint64_t step = 0; step < 3; ++step) {
      const OwnedBatch batch = RandomBatch(config, 2, 70, step, 27, 5);
      trace.losses.push_back(model.Step(batch).sum);
      const std::vector<float> gradients = model.gradients();
      trace.gradients.insert(trace.gradients.end(), gradients.begin(), gradients.end());
      float* weights = model->weights().f32();
      for (size_t i = 0; i < gradients.size(); ++i) weights[i] -= 0.1f * gradients[i];
      model->WeightsChanged();
      EXPECT_TRUE(model->linears()->EndStep(/*skipped=*/false).ok());
    }
    for (const NamedFloats& array : model->linears()->SaveState()) {
      trace.state.push_back(array.values);
    }
    return trace;
  }

  const int num_threads_ = NumThreads();
};

INSTANTIATE_TEST_SUITE_P(Precisions, LlamaDeterminismTest, testing::ValuesIn(AllPrecisions()),
                         [](const testing::TestParamInfo<Precision>& info) {
                           return std::string(PrecisionName(info.param));
                         });

TEST_P(LlamaDeterminismTest, SameBitsRunToRunAndForAnyNumberOfThreads) {
  SetNumThreads(2);
  const Trace first = Train(SmallConfig(), Options());
  EXPECT_LT(first.losses[2], first.losses[0] * 1.5);  // it is a training run, not an explosion
  EXPECT_TRUE(Train(SmallConfig(), Options()) == first);
  for (const int threads : {1, 3}) {
    SetNumThreads(threads);
    EXPECT_TRUE(Train(SmallConfig(), Options()) == first) << threads << " threads";
  }
}

TEST_P(LlamaDeterminismTest, RecomputationChangesNoBit) {
  for (const LlamaConfig& config : {TinyConfig(), SmallConfig()}) {
    const Trace none = Train(config, Options(Recompute::kNone));
    const Trace selective = Train(config, Options(Recompute::kSelective));
    const Trace full = Train(config, Options(Recompute::kFull));
    EXPECT_EQ(selective.losses, none.losses);
    EXPECT_EQ(full.losses, none.losses);
    EXPECT_TRUE(selective.gradients == none.gradients);
    EXPECT_TRUE(full.gradients == none.gradients);
    EXPECT_TRUE(selective.state == none.state);
    EXPECT_TRUE(full.state == none.state);
  }
}

// Row of a report: FP8 state that was updated while weights were cached made micro-batch 2 wrong.
TEST_P(LlamaDeterminismTest, EqualMicroBatchesOfAStepGiveEqualBits) {
  TestModel model(SmallConfig(), Options(), 1, 4);
  const OwnedBatch warm_up = RandomBatch(SmallConfig(), 2, 70, 1);
  for (int step = 0; step < 3; ++step) {  // delayed scaling has a history then
    model.Step(warm_up);
    ASSERT_TRUE(model->linears()->EndStep(false).ok());
  }
  const OwnedBatch batch = RandomBatch(SmallConfig(), 2, 70, 2);
  const LossSum first = model.Step(batch);
  const std::vector<float> gradients = model.gradients();
  for (int micro_batch = 1; micro_batch < 4; ++micro_batch) {
    EXPECT_EQ(model.Step(batch).sum, first.sum);
    EXPECT_TRUE(model.gradients() == gradients) << "micro-batch " << micro_batch;
  }
}

TEST_P(LlamaDeterminismTest, EvaluateGivesTheTrainingLossAndLeavesNoTrace) {
  const LlamaConfig config = SmallConfig();
  TestModel model(config, Options());
  TestModel twin(config, Options());
  const OwnedBatch batch = RandomBatch(config, 2, 70, 1, 0, 5);
  const OwnedBatch other = RandomBatch(config, 2, 70, 2);
  for (int step = 0; step < 2; ++step) {
    const LossSum evaluated = model->Evaluate(batch.view());
    model->Evaluate(other.view());
    model.Logits(other);
    const LossSum trained = model.Step(batch);
    EXPECT_EQ(evaluated.sum, trained.sum);
    EXPECT_EQ(evaluated.num_valid, trained.num_valid);
    const std::vector<float> gradients = model.gradients();
    model->Evaluate(other.view());
    EXPECT_TRUE(model.gradients() == gradients);
    ASSERT_TRUE(model->linears()->EndStep(false).ok());
    // The twin never evaluates.
    EXPECT_EQ(twin.Step(batch).sum, trained.sum);
    EXPECT_TRUE(twin.gradients() == gradients);
    ASSERT_TRUE(twin->linears()->EndStep(false).ok());
    const auto state = model->linears()->SaveState();
    const auto twin_state = twin->linears()->SaveState();
    ASSERT_EQ(state.size(), twin_state.size());
    EXPECT_EQ(state.empty(), GetParam() != Precision::kFp8Delayed);
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(state[i].name, twin_state[i].name);
      EXPECT_EQ(state[i].values, twin_state[i].values) << state[i].name;
    }
  }
}

TEST_P(LlamaDeterminismTest, AModelForInferenceGivesTheSameLogits) {
  const OwnedBatch batch = RandomBatch(SmallConfig(), 2, 70, 1);
  TestModel training(SmallConfig(), Options());
  LlamaOptions options = Options();
  options.training = false;
  TestModel inference(SmallConfig(), options);
  EXPECT_TRUE(training.Logits(batch) == inference.Logits(batch));
  EXPECT_EQ(training->Evaluate(batch.view()).sum, inference->Evaluate(batch.view()).sum);
}

// Reports: a mask that a fused kernel ignored; positions that restart without isolation.
TEST_P(LlamaDeterminismTest, ADocumentDoesNotSeeItsNeighbour) {
  if (GetParam() == Precision::kFp8Tensorwise || GetParam() == Precision::kFp8Delayed) {
    GTEST_SKIP() << "one scale for a whole tensor couples its tokens by design";
  }
  const LlamaConfig config = SmallConfig();
  TestModel model(config, Options());
  OwnedBatch batch = RandomBatch(config, 1, 66, 1, /*document=*/33);
  const std::vector<float> before = model.Logits(batch);
  for (size_t t = 0; t < 33; ++t) batch.tokens[t] = (batch.tokens[t] + 1) % 131;
  const std::vector<float> after = model.Logits(batch);
  const auto second = static_cast<int64_t>(33 * config.vocab);
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + second, after.begin()));
  EXPECT_TRUE(std::equal(before.begin() + second, before.end(), after.begin() + second));
  // Without the mask the second document would see the change.
  std::fill(batch.doc_start.begin(), batch.doc_start.end(), 0);
  const std::vector<float> joined = model.Logits(batch);
  EXPECT_FALSE(std::equal(after.begin() + second, after.end(), joined.begin() + second));
}

TEST_P(LlamaDeterminismTest, AStepAllocatesNothingAfterTheFirst) {
  SetNumThreads(1);
  TestModel model(SmallConfig(), Options());
  const OwnedBatch batch = RandomBatch(SmallConfig(), 2, 70, 1);
  model.Step(batch);
  ASSERT_TRUE(model->linears()->EndStep(false).ok());
  model.Step(batch);
  ASSERT_TRUE(model->linears()->EndStep(false).ok());
  const auto used = mallinfo2().uordblks;
  model.Step(batch);
  ASSERT_TRUE(model->linears()->EndStep(false).ok());
  EXPECT_EQ(mallinfo2().uordblks, used);
}

}  // namespace
}  // namespace cria::model

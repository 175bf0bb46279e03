#include "trainer/bench/verify_step.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/parallel.h"
#include "model/cpu/cpu_ops.h"
#include "model/forwarding_ops.h"

namespace cria::trainer {
namespace {

using model::Precision;

TEST(VerifyStepTest, EveryPrecisionPassesOnATinyModel) {
  const BenchShape shape = TinyBenchShape();
  BenchBatch batch(shape);
  const auto ops = model::cpu::NewCpuOps();
  BenchStep fp32(shape, Precision::kFp32, ops.get(), &batch);
  const StepResult reference = VerifyThreads(&fp32, Precision::kFp32, {1, 2}).value();
  for (const std::string& name : model::PrecisionNames()) {
    const Precision precision = *model::PrecisionFromName(name);
    BenchStep step(shape, precision, ops.get(), &batch);
    const StatusOr<StepResult> result = VerifyThreads(&step, precision, {1, 2});
    ASSERT_TRUE(result.ok()) << result.status();
    const Status close = VerifyClose(name, *result, reference, precision);
    EXPECT_TRUE(close.ok()) << close;
  }
}

// An embedding whose values depend on the number of threads.
class UnevenOps final : public model::ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void EmbeddingForward(const model::EmbeddingForwardArgs& args) override {
    ForwardingOps::EmbeddingForward(args);
    args.out.f32()[0] += 1e-6f * static_cast<float>(NumThreads());
  }
};

TEST(VerifyStepTest, OtherBitsWithOtherThreadsAreFound) {
  const BenchShape shape = TinyBenchShape();
  BenchBatch batch(shape);
  const auto ops = model::cpu::NewCpuOps();
  UnevenOps uneven(ops.get());
  BenchStep step(shape, Precision::kFp32, &uneven, &batch);
  const int before = NumThreads();
  const Status status = VerifyThreads(&step, Precision::kFp32, {1, 2}).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(Message(status).rfind("verify fp32: 2 threads give other bits than 1", 0), 0u)
      << status;
  EXPECT_EQ(NumThreads(), before);
}

TEST(VerifyStepTest, ValuesBeyondTheToleranceAndNotNumbersAreFound) {
  const StepResult want = {.loss = 8, .grad_norm = 2};
  EXPECT_TRUE(VerifyClose("x", {.loss = 8.0007, .grad_norm = 2}, want, Precision::kFp32).ok());
  EXPECT_FALSE(VerifyClose("x", {.loss = 8.0009, .grad_norm = 2}, want, Precision::kFp32).ok());
  EXPECT_FALSE(VerifyClose("x", {.loss = 8, .grad_norm = 2.001}, want, Precision::kFp32).ok());
  EXPECT_TRUE(VerifyClose("x", {.loss = 8.01, .grad_norm = 2.01}, want, Precision::kBf16).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(VerifyClose("x", {.loss = nan, .grad_norm = 2}, want, Precision::kBf16).ok());
}

}  // namespace
}  // namespace cria::trainer

#include "trainer/bench/timing_ops.h"

#include <gtest/gtest.h>

#include <map>

#include "model/cpu/cpu_ops.h"
#include "trainer/bench/bench_step.h"

namespace cria::trainer {
namespace {

std::map<std::string, OpRecord> ByName(const TimingOps& ops) {
  std::map<std::string, OpRecord> records;
  for (const OpRecord& record : ops.records()) records[record.name] = record;
  return records;
}

TEST(TimingOpsTest, AStepHasTheResultsOfThePlainOne) {
  for (const model::Precision precision :
       {model::Precision::kFp32, model::Precision::kFp8Blockwise}) {
    const BenchShape shape = TinyBenchShape();
    BenchBatch batch(shape);
    const auto ops = model::cpu::NewCpuOps();
    TimingOps timing(ops.get(), RealClock());
    BenchStep plain(shape, precision, ops.get(), &batch);
    BenchStep timed(shape, precision, &timing, &batch);
    for (int step = 0; step < 3; ++step) {
      const StepResult want = plain.Run();
      const StepResult got = timed.Run();
      EXPECT_EQ(got.loss, want.loss);
      EXPECT_EQ(got.grad_norm, want.grad_norm);
    }
  }
}

TEST(TimingOpsTest, AStepsProductsAndAttentionAreCounted) {
  const BenchShape shape = TinyBenchShape();
  BenchBatch batch(shape);
  const auto ops = model::cpu::NewCpuOps();
  TimingOps timing(ops.get(), RealClock());
  BenchStep step(shape, model::Precision::kFp32, &timing, &batch);
  timing.Reset();
  step.Run();
  double gemm_flops = 0;
  int64_t num_gemms = 0;
  for (const OpRecord& record : timing.records()) {
    if (!record.gemm) continue;
    gemm_flops += record.flops;
    num_gemms += record.num_calls;
  }
  EXPECT_EQ(gemm_flops, TotalFlops(StepGemms(shape.config, shape.tokens(), false)));
  EXPECT_EQ(num_gemms, 3 * (4 * shape.config.layers + 1));
  const std::map<std::string, OpRecord> records = ByName(timing);
  EXPECT_EQ(records.at("attention forward").num_calls, shape.config.layers);
  // 2 products x 2 flops x B H K x T (T + 1) / 2 pairs, for each layer.
  EXPECT_EQ(records.at("attention forward").flops, 2.0 * 2 * 2 * 64 * 64 * 65);
  EXPECT_EQ(records.at("attention backward").flops, 2.0 * 5 * 2 * 64 * 64 * 65);
}

TEST(TimingOpsTest, TimeIsTheClocks) {
  // Stands still but for what the wrapped operation takes, which is nothing.
  FakeClock clock;
  const auto ops = model::cpu::NewCpuOps();
  TimingOps timing(ops.get(), &clock);
  std::vector<float> x(100, 1.0f);
  timing.Zero(model::Tensor(x.data(), model::DType::kF32, {100}));
  ASSERT_EQ(timing.records().size(), 1u);
  EXPECT_EQ(timing.records()[0].seconds, 0);
  EXPECT_EQ(timing.records()[0].bytes, 400);
  EXPECT_EQ(x[99], 0.0f);
  timing.Reset();
  EXPECT_TRUE(timing.records().empty());
}

}  // namespace
}  // namespace cria::trainer

// Ops that time each call of another Ops and count its work, by operation and shape.
//
//   TimingOps timing(ops.get(), RealClock());
//   BenchStep step(shape, precision, &timing, &batch);
//   step.Run();
//   for (const OpRecord& record : timing.records()) ...
//   timing.Reset();
//
// Results are those of the wrapped Ops. Cost: about a microsecond a call. Single-threaded.

#ifndef CRIA_TRAINER_BENCH_TIMING_OPS_H_
#define CRIA_TRAINER_BENCH_TIMING_OPS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/ops.h"
#include "trainer/bench/gemm_baseline.h"

namespace cria::trainer {

struct OpRecord {
  std::string name;               // "matmul 2048x864x288 NT bf16->bf16", "swiglu forward"
  std::optional<GemmShape> gemm;  // of a matmul; its count is 1
  int64_t num_calls = 0;
  double seconds = 0;
  double flops = 0;  // matmuls and attention
  double bytes = 0;  // the others: every operand read and every result written once
};

class TimingOps final : public model::Ops {
 public:
  // Both stay the caller's.
  TimingOps(model::Ops* ops, Clock* clock) : ops_(ops), clock_(clock) {}

  // Since the last Reset, in order of names.
  std::vector<OpRecord> records() const;
  void Reset() { records_.clear(); }

  int64_t WorkspaceBytes(const model::StepShape& shape) const override {
    return ops_->WorkspaceBytes(shape);
  }
  void WeightsChanged() override { ops_->WeightsChanged(); }
  void Matmul(const model::MatmulArgs& args) override;
  int64_t PackedElements(model::DType dtype, int64_t n, int64_t k) const override {
    return ops_->PackedElements(dtype, n, k);
  }
  void PackWeight(const model::PackWeightArgs& args) override;
  void MatmulPacked(const model::MatmulPackedArgs& args) override;
  void PackedEmbedding(const model::PackedEmbeddingArgs& args) override;
  model::Quantized Quantize(const model::QuantizeArgs& args) override;
  void Amax(const model::AmaxArgs& args) override;
  void RmsNormForward(const model::RmsNormForwardArgs& args) override;
  void RmsNormBackward(const model::RmsNormBackwardArgs& args) override;
  void Rope(const model::RopeArgs& args) override;
  void AttentionForward(const model::AttentionForwardArgs& args) override;
  int64_t CacheElements(int64_t positions, int64_t kv_heads, int64_t head_dim) const override {
    return ops_->CacheElements(positions, kv_heads, head_dim);
  }
  void StoreKeyValues(const model::StoreKeyValuesArgs& args) override;
  void AttentionBackward(const model::AttentionBackwardArgs& args) override;
  void SwigluForward(const model::SwigluForwardArgs& args) override;
  void SwigluBackward(const model::SwigluBackwardArgs& args) override;
  void EmbeddingForward(const model::EmbeddingForwardArgs& args) override;
  bool EmbeddingBackward(const model::EmbeddingBackwardArgs& args) override;
  void CrossEntropy(const model::CrossEntropyArgs& args) override;
  void LogitStats(const model::LogitStatsArgs& args) override;
  void LogitGradient(const model::LogitGradientArgs& args) override;
  void Add(const model::AddArgs& args) override;
  bool AddFixed(const model::AddFixedArgs& args) override;
  void FixedToFloat(const model::FixedToFloatArgs& args) override;
  void AdamW(const model::AdamWArgs& args) override;
  double SumOfSquares(const model::Tensor& x) override;
  void Zero(const model::Tensor& x) override;
  void Copy(const model::Tensor& from, const model::Tensor& to) override;

 private:
  // Runs `call` and adds its time to the record of that name.
  template <typename Call>
  OpRecord& Timed(const std::string& name, const Call& call);

  model::Ops* const ops_;
  Clock* const clock_;
  std::map<std::string, OpRecord> records_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_TIMING_OPS_H_

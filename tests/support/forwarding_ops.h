// An Ops that hands every operation to another one: the base of wrappers that watch or spoil some.
//
//   class CountingOps : public ForwardingOps {
//    public:
//     using ForwardingOps::ForwardingOps;
//     void Matmul(const model::MatmulArgs& args) override { ++count; ForwardingOps::Matmul(args); }
//   };
//
// Single-threaded; the wrapped Ops is borrowed.

#ifndef CRIA_TESTS_SUPPORT_FORWARDING_OPS_H_
#define CRIA_TESTS_SUPPORT_FORWARDING_OPS_H_

#include "model/ops.h"

namespace cria {

class ForwardingOps : public model::Ops {
 public:
  explicit ForwardingOps(model::Ops* ops) : ops_(ops) {}

  int64_t WorkspaceBytes(const model::StepShape& shape) const override {
    return ops_->WorkspaceBytes(shape);
  }
  void WeightsChanged() override { ops_->WeightsChanged(); }
  void Matmul(const model::MatmulArgs& args) override { ops_->Matmul(args); }
  int64_t PackedElements(model::DType dtype, int64_t n, int64_t k) const override {
    return ops_->PackedElements(dtype, n, k);
  }
  void PackWeight(const model::PackWeightArgs& args) override { ops_->PackWeight(args); }
  void MatmulPacked(const model::MatmulPackedArgs& args) override { ops_->MatmulPacked(args); }
  void PackedEmbedding(const model::PackedEmbeddingArgs& args) override {
    ops_->PackedEmbedding(args);
  }
  model::Quantized Quantize(const model::QuantizeArgs& args) override {
    return ops_->Quantize(args);
  }
  void Amax(const model::AmaxArgs& args) override { ops_->Amax(args); }
  void RmsNormForward(const model::RmsNormForwardArgs& args) override {
    ops_->RmsNormForward(args);
  }
  void RmsNormBackward(const model::RmsNormBackwardArgs& args) override {
    ops_->RmsNormBackward(args);
  }
  void Rope(const model::RopeArgs& args) override { ops_->Rope(args); }
  void AttentionForward(const model::AttentionForwardArgs& args) override {
    ops_->AttentionForward(args);
  }
  int64_t CacheElements(int64_t positions, int64_t kv_heads, int64_t head_dim) const override {
    return ops_->CacheElements(positions, kv_heads, head_dim);
  }
  void StoreKeyValues(const model::StoreKeyValuesArgs& args) override {
    ops_->StoreKeyValues(args);
  }
  void AttentionBackward(const model::AttentionBackwardArgs& args) override {
    ops_->AttentionBackward(args);
  }
  void SwigluForward(const model::SwigluForwardArgs& args) override { ops_->SwigluForward(args); }
  void SwigluBackward(const model::SwigluBackwardArgs& args) override {
    ops_->SwigluBackward(args);
  }
  void EmbeddingForward(const model::EmbeddingForwardArgs& args) override {
    ops_->EmbeddingForward(args);
  }
  bool EmbeddingBackward(const model::EmbeddingBackwardArgs& args) override {
    return ops_->EmbeddingBackward(args);
  }
  void CrossEntropy(const model::CrossEntropyArgs& args) override { ops_->CrossEntropy(args); }
  void LogitStats(const model::LogitStatsArgs& args) override { ops_->LogitStats(args); }
  void LogitGradient(const model::LogitGradientArgs& args) override { ops_->LogitGradient(args); }
  void Add(const model::AddArgs& args) override { ops_->Add(args); }
  bool AddFixed(const model::AddFixedArgs& args) override { return ops_->AddFixed(args); }
  void FixedToFloat(const model::FixedToFloatArgs& args) override { ops_->FixedToFloat(args); }
  void AdamW(const model::AdamWArgs& args) override { ops_->AdamW(args); }
  double SumOfSquares(const model::Tensor& x) override { return ops_->SumOfSquares(x); }
  void Zero(const model::Tensor& x) override { ops_->Zero(x); }
  void Copy(const model::Tensor& from, const model::Tensor& to) override { ops_->Copy(from, to); }

 private:
  model::Ops* const ops_;
};

}  // namespace cria

#endif  // CRIA_TESTS_SUPPORT_FORWARDING_OPS_H_

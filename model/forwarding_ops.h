// An Ops that hands every operation to another one: the base of wrappers that watch or change some.
//
//   class CountingOps : public ForwardingOps {
//    public:
//     using ForwardingOps::ForwardingOps;
//     void Matmul(const MatmulArgs& args) override { ++count; ForwardingOps::Matmul(args); }
//   };
//
// Single-threaded; the wrapped Ops is borrowed.

#ifndef CRIA_MODEL_FORWARDING_OPS_H_
#define CRIA_MODEL_FORWARDING_OPS_H_

#include "model/ops.h"

namespace cria::model {

class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(Ops* ops) : ops_(ops) {}

  int64_t WorkspaceBytes(const StepShape& shape) const override {
    return ops_->WorkspaceBytes(shape);
  }
  void WeightsChanged() override { ops_->WeightsChanged(); }
  void Matmul(const MatmulArgs& args) override { ops_->Matmul(args); }
  int64_t PackedElements(DType dtype, int64_t n, int64_t k) const override {
    return ops_->PackedElements(dtype, n, k);
  }
  void PackWeight(const PackWeightArgs& args) override { ops_->PackWeight(args); }
  void MatmulPacked(const MatmulPackedArgs& args) override { ops_->MatmulPacked(args); }
  void PackedEmbedding(const PackedEmbeddingArgs& args) override { ops_->PackedEmbedding(args); }
  Quantized Quantize(const QuantizeArgs& args) override { return ops_->Quantize(args); }
  void Amax(const AmaxArgs& args) override { ops_->Amax(args); }
  void RmsNormForward(const RmsNormForwardArgs& args) override { ops_->RmsNormForward(args); }
  void RmsNormBackward(const RmsNormBackwardArgs& args) override { ops_->RmsNormBackward(args); }
  void Rope(const RopeArgs& args) override { ops_->Rope(args); }
  void AttentionForward(const AttentionForwardArgs& args) override { ops_->AttentionForward(args); }
  int64_t CacheElements(int64_t positions, int64_t kv_heads, int64_t head_dim) const override {
    return ops_->CacheElements(positions, kv_heads, head_dim);
  }
  void StoreKeyValues(const StoreKeyValuesArgs& args) override { ops_->StoreKeyValues(args); }
  void AttentionBackward(const AttentionBackwardArgs& args) override {
    ops_->AttentionBackward(args);
  }
  void SwigluForward(const SwigluForwardArgs& args) override { ops_->SwigluForward(args); }
  void SwigluBackward(const SwigluBackwardArgs& args) override { ops_->SwigluBackward(args); }
  void EmbeddingForward(const EmbeddingForwardArgs& args) override { ops_->EmbeddingForward(args); }
  bool EmbeddingBackward(const EmbeddingBackwardArgs& args) override {
    return ops_->EmbeddingBackward(args);
  }
  void CrossEntropy(const CrossEntropyArgs& args) override { ops_->CrossEntropy(args); }
  void LogitStats(const LogitStatsArgs& args) override { ops_->LogitStats(args); }
  void LogitGradient(const LogitGradientArgs& args) override { ops_->LogitGradient(args); }
  void Add(const AddArgs& args) override { ops_->Add(args); }
  bool AddFixed(const AddFixedArgs& args) override { return ops_->AddFixed(args); }
  void FixedToFloat(const FixedToFloatArgs& args) override { ops_->FixedToFloat(args); }
  void AdamW(const AdamWArgs& args) override { ops_->AdamW(args); }
  double SumOfSquares(const Tensor& x) override { return ops_->SumOfSquares(x); }
  void Zero(const Tensor& x) override { ops_->Zero(x); }
  void Copy(const Tensor& from, const Tensor& to) override { ops_->Copy(from, to); }

 private:
  Ops* const ops_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_FORWARDING_OPS_H_

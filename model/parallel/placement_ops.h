// An Ops that checks, before each operation, that its operands are divided over the ranks of tensor
// parallelism (model/placement.h) as the operation's result means:
//
//   PlacementOps checked(ops.get());
//   checked.Matmul({.a = x_RF, .b = w_DF, .c = y_RD, .transpose_b = true});
//     aborts with "matmul: b is shard(0), with a shard(1) it needs shard(1)"
//
//   op                    operands                               result
//   Matmul                both whole                             replicate
//                         one divided along its rows of c        shard(0)
//                         one divided along its columns of c     shard(1)
//                         both divided along the inner side      partial
//   RmsNorm               replicate or shard(0), weight whole    the same; dweight partial of rows
//   Rope, attention       replicate or shard(1) (heads)          the same
//   Swiglu, Quantize      all but partial: not linear            the same
//   Embedding             table shard(0)                         partial
//     backward            dout replicate                         dtable as the table
//   CrossEntropy          logits replicate or shard(0)           the same: all classes are there
//   LogitStats, Gradient  logits shard(1)                        parts of sums; dlogits shard(1)
//   Add, Copy, AddFixed,  anything                               the same
//   FixedToFloat
//
// Where keys and values are held by several ranks, shard means a rank's share with what it has in
// common with its neighbours. Costs a few comparisons an operation. Single-threaded; the wrapped
// Ops is borrowed.

#ifndef CRIA_MODEL_PARALLEL_PLACEMENT_OPS_H_
#define CRIA_MODEL_PARALLEL_PLACEMENT_OPS_H_

#include "model/forwarding_ops.h"
#include "model/ops.h"

namespace cria::model {

class PlacementOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  void Matmul(const MatmulArgs& args) override;
  Quantized Quantize(const QuantizeArgs& args) override;
  void Amax(const AmaxArgs& args) override;
  void RmsNormForward(const RmsNormForwardArgs& args) override;
  void RmsNormBackward(const RmsNormBackwardArgs& args) override;
  void Rope(const RopeArgs& args) override;
  void AttentionForward(const AttentionForwardArgs& args) override;
  void AttentionBackward(const AttentionBackwardArgs& args) override;
  void SwigluForward(const SwigluForwardArgs& args) override;
  void SwigluBackward(const SwigluBackwardArgs& args) override;
  void EmbeddingForward(const EmbeddingForwardArgs& args) override;
  bool EmbeddingBackward(const EmbeddingBackwardArgs& args) override;
  void CrossEntropy(const CrossEntropyArgs& args) override;
  void LogitStats(const LogitStatsArgs& args) override;
  void LogitGradient(const LogitGradientArgs& args) override;
  void Add(const AddArgs& args) override;
  bool AddFixed(const AddFixedArgs& args) override;
  void FixedToFloat(const FixedToFloatArgs& args) override;
  void Copy(const Tensor& from, const Tensor& to) override;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_PLACEMENT_OPS_H_

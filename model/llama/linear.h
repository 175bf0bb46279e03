// Linear layers at each precision: the three GEMMs of y = x w^T, and what happens to their
// operands.
//
//   Linears linears(ops, Precision::kFp8Delayed, {"model.layers.0.self_attn.qkv", ...});
//   linears.Forward({.id = 0, .x = x_RD, .w = w_ED, .y = y_RE});
//   linears.Backward({.id = 0, .dy = dy_RE, .x = x_RD, .w = w_ED, .dx = dx_RD, .dw = dw_ED});
//
// fp32 and bf16: the operands as they are. FP8: each operand is quantised by the recipe's table for
// each GEMM (model/fp8/recipe.h) from its high-precision source into scratch, so one micro-batch
// can't see another's. Delayed scaling's state lives here: scales change in EndStep alone, so all
// micro-batches of a step see the same. Single-threaded.

#ifndef CRIA_MODEL_LLAMA_LINEAR_H_
#define CRIA_MODEL_LLAMA_LINEAR_H_

#include <memory>
#include <string>
#include <vector>

#include "comm/api/communicator.h"
#include "model/arena.h"
#include "model/fp8/delayed.h"
#include "model/ops.h"
#include "model/precision.h"

namespace cria::model {

// How a layer's weight w[N,K] is divided: by its rows (each rank has all inputs and its share of
// outputs) or by its columns (its share of inputs; outputs are summed).
enum class WeightSplit : uint8_t { kRows, kColumns };

// Ranks that hold the other parts of an operand; null: none.
struct OperandGroups {
  comm::Communicator* tp = nullptr;   // of weights, and of the divided side of activations
  comm::Communicator* cp = nullptr;   // of activations: other tokens
  comm::Communicator* all = nullptr;  // both
};

struct LinearForwardArgs {
  int64_t id = 0;                   // index of the layer's name
  Tensor x;                         // [R, K]
  Tensor w;                         // [N, K]
  Tensor y;                         // [R, N]
  const float* w_factor = nullptr;  // w is in 8 bits already; the product's factor
  bool record = true;               // false in evaluation: leaves no trace in the FP8 state
};

struct LinearBackwardArgs {
  int64_t id = 0;
  Tensor dy;  // [R, N]
  Tensor x;   // [R, K]
  Tensor w;   // [N, K]
  Tensor dx;  // [R, K] out
  Tensor dw;  // [N, K] fp32, added to
  const float* w_factor = nullptr;
};

class Linears {
 public:
  // Scratch for operands of up to max_elements each comes from the arena (FP8 only).
  struct Layer {
    std::string name;
    WeightSplit split = WeightSplit::kRows;
  };
  // `max_side`: rows or columns of the longest operand.
  Linears(Ops* ops, Precision precision, const std::vector<Layer>& layers,
          int64_t max_activation_elements, int64_t max_weight_elements, int64_t max_side,
          Arena* arena);

  void set_groups(const OperandGroups& groups) { groups_ = groups; }

  // Weights stay where they are, unchanged, until Ops::WeightsChanged.
  void set_keeps_weights(bool keeps) { keeps_weights_ = keeps; }

  Status Forward(const LinearForwardArgs& args);
  // dx = dy w, then dw += dy^T x. The two halves may be called apart where x is computed in
  // between.
  Status BackwardInput(const LinearBackwardArgs& args);
  Status BackwardWeight(const LinearBackwardArgs& args);

  // After the optimizer's step, or after one that was skipped and must leave no trace. `stage`: the
  // ranks that ran the same layers; null: this one alone.
  Status EndStep(bool skipped, comm::Communicator* stage = nullptr);
  // The first operand since the last EndStep that held an infinity or a NaN, as "layer.input";
  // empty when there was none. Rounding to 8 bits saturates infinities, so nothing later would show
  // them.
  const std::string& first_non_finite() const { return first_non_finite_; }
  // Something else that was not finite, for first_non_finite.
  void NoteNonFinite(const std::string& name);
  // New weights from elsewhere: forgets what was seen of the old ones.
  void Reset();
  // FP8 state for checkpoints; empty but for delayed scaling.
  std::vector<NamedFloats> SaveState() const;
  Status LoadState(std::span<const NamedFloats> arrays);

 private:
  enum Operand { kInput, kWeight, kGradient, kNumOperands };

  // x quantised into scratch.
  StatusOr<Tensor> Quantize(const QuantizeSpec& spec, int64_t id, Operand operand, const Tensor& x,
                            Tensor scratch, bool record, float* dequant);
  // The weight as an 8-bit operand.
  StatusOr<Tensor> QuantizeWeight(const QuantizeSpec& spec, int64_t id, const Tensor& w,
                                  const float* factor, bool record, float* dequant);
  // Who holds the rest of the numbers that share a scale.
  comm::Communicator* GroupOf(ScaleUnit unit, int64_t id, Operand operand) const;

  Ops* ops_;
  std::vector<Layer> layers_;
  OperandGroups groups_;
  Tensor amax_;
  std::string first_non_finite_;
  std::optional<Fp8Recipe> recipe_;
  bool keeps_weights_ = false;
  Tensor left_, right_;  // scratch operands
  std::unique_ptr<DelayedScaling> delayed_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_LINEAR_H_

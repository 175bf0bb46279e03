// AdamW over all parameters of a model: fp32 moments, decoupled decay on matrices and embeddings
// only, clipping by the global norm folded into the step.
//
//   AdamW optimizer(&buffers, {.beta1 = 0.9, .beta2 = 0.95}, ops);
//   CRIA_RETURN_IF_ERROR(buffers.FinishGradients());
//   CRIA_ASSIGN_OR_RETURN(const GradientNorm norm, optimizer.Norm());
//   if (norm.finite()) {
//     optimizer.Step(lr, norm.value);
//     CRIA_RETURN_IF_ERROR(buffers.GatherWeights());
//   }
//
// A rank updates the parts that ParameterParts::updated gives it, and has moments for those alone.
// The norm counts each element of the model once, in whatever layout, and all ranks get its same
// bits.
//
// The state (two fp32 numbers a parameter, and the count of steps) is what a checkpoint saves. A
// step on gradients that are not finite is a CHECK: the caller looks at Norm first.
// Single-threaded. Norm is called by all ranks of the world, which it talks to.

#ifndef CRIA_TRAINER_OPTIMIZER_ADAMW_H_
#define CRIA_TRAINER_OPTIMIZER_ADAMW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/arena.h"
#include "model/ops.h"
#include "model/parallel/parameter_buffers.h"
#include "model/parallel/parameter_parts.h"
#include "trainer/optimizer/gradient_norm.h"

namespace cria::trainer {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: no clipping
};

class AdamW {
 public:
  // `buffers` and `ops` outlive it.
  AdamW(model::ParameterBuffers* buffers, const AdamWOptions& options, model::Ops* ops);

  // Bytes of the state of a rank with these parts.
  static int64_t StateBytes(const model::ParameterParts& parts);

  // Two-norm over all gradients of the model, after FinishGradients.
  StatusOr<GradientNorm> Norm() { return norm_.Compute(); }

  // One update with learning rate `lr`; `norm` is Norm()->value.
  void Step(double lr, double norm);

  // First and second moments, [parts().updated().num_elements()] fp32, and the updates done so far.
  const model::Tensor& m() const { return m_; }
  const model::Tensor& v() const { return v_; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

 private:
  // A stretch of a block's updated part with the same decay.
  struct Stretch {
    int block;
    int64_t begin, end;  // from the part's start
    int64_t at;          // in the moments
    bool decay;
  };

  model::ParameterBuffers* const buffers_;
  const AdamWOptions options_;
  model::Ops* const ops_;
  std::vector<Stretch> stretches_;
  model::Arena arena_;
  model::Tensor m_, v_;
  GradientNormMeter norm_;
  int64_t num_steps_ = 0;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_OPTIMIZER_ADAMW_H_

// AdamW over all parameters of a model: fp32 moments, decoupled decay on matrices and embeddings
// only, clipping by the global norm folded into the step.
//
//   AdamW optimizer(model.layout(), {.beta1 = 0.9, .beta2 = 0.95}, ops);
//   const GradientNorm norm = optimizer.Norm(model.gradients());
//   if (norm.finite()) optimizer.Step(model.weights(), model.gradients(), {.lr = lr, .norm =
//   norm.value});
//
// The state (two fp32 numbers a parameter, and the count of steps) is what a checkpoint saves. A
// step on gradients that are not finite is a CHECK: the caller looks at Norm first.
// Single-threaded.

#ifndef CRIA_TRAINER_OPTIMIZER_ADAMW_H_
#define CRIA_TRAINER_OPTIMIZER_ADAMW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/arena.h"
#include "model/llama/parameters.h"
#include "model/ops.h"

namespace cria::trainer {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: no clipping
};

struct GradientNorm {
  double value = 0;
  std::string
      first_non_finite;  // the first parameter whose gradient is not finite; empty when all are
  bool finite() const { return first_non_finite.empty(); }
};

class AdamW {
 public:
  AdamW(const model::ParameterLayout& layout, const AdamWOptions& options, model::Ops* ops);

  // Bytes of the state of such a model.
  static int64_t StateBytes(const model::ParameterLayout& layout);

  // Two-norm over all gradients.
  GradientNorm Norm(const model::Tensor& gradients);

  // One update with learning rate `lr`; `norm` is Norm(gradients).value.
  void Step(const model::Tensor& weights, const model::Tensor& gradients, double lr, double norm);

  // First and second moments, [layout.num_elements()] fp32, and the updates done so far.
  const model::Tensor& m() const { return m_; }
  const model::Tensor& v() const { return v_; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

 private:
  // A run of neighbouring parameters with the same decay.
  struct Range {
    int64_t begin, end;
    bool decay;
  };

  const model::ParameterLayout& layout_;
  const AdamWOptions options_;
  model::Ops* const ops_;
  std::vector<Range> ranges_;
  model::Arena arena_;
  model::Tensor m_, v_;
  int64_t num_steps_ = 0;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_OPTIMIZER_ADAMW_H_

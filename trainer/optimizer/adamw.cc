#include "trainer/optimizer/adamw.h"

#include <cmath>

#include "base/check.h"

namespace cria::trainer {

AdamW::AdamW(const model::ParameterLayout& layout, const AdamWOptions& options, model::Ops* ops)
    : layout_(layout), options_(options), ops_(ops), arena_(StateBytes(layout)) {
  const int64_t n = layout.num_elements();
  m_ = arena_.Alloc(model::DType::kF32, {n});
  v_ = arena_.Alloc(model::DType::kF32, {n});
  for (const model::Parameter& parameter : layout.parameters()) {
    const int64_t end = parameter.offset + parameter.num_elements();
    if (!ranges_.empty() && ranges_.back().decay == parameter.decay) {
      ranges_.back().end = end;
    } else {
      ranges_.push_back({parameter.offset, end, parameter.decay});
    }
  }
}

int64_t AdamW::StateBytes(const model::ParameterLayout& layout) {
  model::Arena plan = model::Arena::Planning();
  plan.Alloc(model::DType::kF32, {layout.num_elements()});
  plan.Alloc(model::DType::kF32, {layout.num_elements()});
  return plan.used_bytes();
}

GradientNorm AdamW::Norm(const model::Tensor& gradients) {
  GradientNorm norm;
  double squares = 0;
  for (const model::Parameter& parameter : layout_.parameters()) {
    const double sum = ops_->SumOfSquares(
        gradients.Rows(parameter.offset, parameter.offset + parameter.num_elements()));
    if (!std::isfinite(sum) && norm.finite()) norm.first_non_finite = parameter.name;
    squares += sum;
  }
  norm.value = std::sqrt(squares);
  return norm;
}

void AdamW::Step(const model::Tensor& weights, const model::Tensor& gradients, double lr,
                 double norm) {
  CRIA_CHECK(std::isfinite(norm), "gradient norm ", norm);
  ++num_steps_;
  // torch.nn.utils.clip_grad_norm_'s formula, its 1e-6 included.
  double scale = 1;
  if (options_.clip_norm > 0) scale = std::min(1.0, options_.clip_norm / (norm + 1e-6));
  for (const Range& range : ranges_) {
    ops_->AdamW({.weight = weights.Rows(range.begin, range.end),
                 .grad = gradients.Rows(range.begin, range.end),
                 .m = m_.Rows(range.begin, range.end),
                 .v = v_.Rows(range.begin, range.end),
                 .lr = static_cast<float>(lr),
                 .beta1 = static_cast<float>(options_.beta1),
                 .beta2 = static_cast<float>(options_.beta2),
                 .eps = static_cast<float>(options_.eps),
                 .weight_decay = static_cast<float>(range.decay ? options_.weight_decay : 0),
                 .grad_scale = static_cast<float>(scale),
                 .step = num_steps_});
  }
}

}  // namespace cria::trainer

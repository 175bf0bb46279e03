#include "trainer/optimizer/adamw.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace cria::trainer {

AdamW::AdamW(model::ParameterBuffers* buffers, const AdamWOptions& options, model::Ops* ops)
    : buffers_(buffers),
      options_(options),
      ops_(ops),
      arena_(StateBytes(buffers->parts())),
      norm_(buffers, ops) {
  const model::BlockParts& updated = buffers->parts().updated();
  m_ = arena_.Alloc(model::DType::kF32, {updated.num_elements()});
  v_ = arena_.Alloc(model::DType::kF32, {updated.num_elements()});
  for (int b = 0; b < updated.num_blocks(); ++b) {
    const model::BlockPart& part = updated.block(b);
    const size_t first = stretches_.size();
    for (const model::Parameter& p : buffers->layout().parameters()) {
      const int64_t begin = std::max(p.offset, part.begin) - part.begin;
      const int64_t end = std::min(p.offset + p.num_elements(), part.end) - part.begin;
      if (begin >= end) continue;
      // A block's parameters come in the order of their offsets.
      if (stretches_.size() > first && stretches_.back().decay == p.decay) {
        stretches_.back().end = end;
      } else {
        stretches_.push_back({b, begin, end, part.at + begin, p.decay});
      }
    }
  }
}

int64_t AdamW::StateBytes(const model::ParameterParts& parts) {
  model::Arena plan = model::Arena::Planning();
  plan.Alloc(model::DType::kF32, {parts.updated().num_elements()});
  plan.Alloc(model::DType::kF32, {parts.updated().num_elements()});
  return plan.used_bytes();
}

void AdamW::Step(double lr, double norm) {
  CRIA_CHECK(std::isfinite(norm), "gradient norm ", norm);
  ++num_steps_;
  // torch.nn.utils.clip_grad_norm_'s formula, its 1e-6 included.
  double scale = 1;
  if (options_.clip_norm > 0) scale = std::min(1.0, options_.clip_norm / (norm + 1e-6));
  for (const Stretch& s : stretches_) {
    const int64_t n = s.end - s.begin;
    ops_->AdamW({.weight = buffers_->UpdatedWeights(s.block).Rows(s.begin, s.end),
                 .grad = buffers_->UpdatedGradients(s.block).Rows(s.begin, s.end),
                 .m = m_.Rows(s.at, s.at + n),
                 .v = v_.Rows(s.at, s.at + n),
                 .lr = static_cast<float>(lr),
                 .beta1 = static_cast<float>(options_.beta1),
                 .beta2 = static_cast<float>(options_.beta2),
                 .eps = static_cast<float>(options_.eps),
                 .weight_decay = static_cast<float>(s.decay ? options_.weight_decay : 0),
                 .grad_scale = static_cast<float>(scale),
                 .step = num_steps_});
  }
}

}  // namespace cria::trainer

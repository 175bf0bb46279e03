#include "trainer/data/val_split.h"

#include <algorithm>

#include "base/check.h"

namespace cria::trainer {

ValSplit::ValSplit(double fraction, uint64_t seed)
    : fraction_(fraction), rng_(seed, StreamOf("data/validation split")) {
  CRIA_CHECK(fraction >= 0 && fraction < 1, fraction);
}

void ValSplit::Survey(const TextPart& part) {
  num_bytes_ += part.text.size();
  if (!part.is_first) return;
  const uint64_t document = part.document;
  ++num_documents_;
  const double draw = rng_.Uniform(document);
  (draw < fraction_ ? has_val_ : has_train_) = true;
  if (draw < rng_.Uniform(lowest_)) lowest_ = document;
  if (draw > rng_.Uniform(highest_)) highest_ = document;
}

bool ValSplit::decided() const {
  return num_documents_ > 0 && (fraction_ == 0 || (has_train_ && has_val_));
}

Status ValSplit::Finish() {
  if (num_documents_ == 0) return InvalidArgumentError("the corpus holds no text");
  if (decided()) return OkStatus();
  if (num_documents_ == 1 && num_bytes_ < 2) {
    return InvalidArgumentError("the corpus is a single document of ", num_bytes_,
                                " byte: too little to hold out validation text (--val-fraction 0 "
                                "holds out none)");
  }
  if (num_documents_ == 1) {
    const double wanted = (1 - fraction_) * static_cast<double>(num_bytes_);
    cut_at_byte_ = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, num_bytes_ - 1);
  } else if (!has_val_) {
    forced_val_ = lowest_;
  } else {
    forced_train_ = highest_;
  }
  return OkStatus();
}

bool ValSplit::IsVal(uint64_t document) const {
  if (cut_at_byte_.has_value() || document == forced_train_) return false;
  return document == forced_val_ || rng_.Uniform(document) < fraction_;
}

}  // namespace cria::trainer

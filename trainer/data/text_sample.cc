#include "trainer/data/text_sample.h"

#include <algorithm>
#include <utility>

namespace cria::trainer {

TextSample::TextSample(uint64_t bytes_max, uint64_t seed)
    : bytes_max_(bytes_max), rng_(seed, StreamOf("data/tokenizer sample")) {}

void TextSample::Add(std::string_view text) {
  const double draw = rng_.Uniform(num_offered_++);
  num_bytes_offered_ += text.size();
  if (draw >= bar_ || text.empty()) return;
  texts_.emplace_back(text);
  draws_.push_back(draw);
  num_bytes_ += text.size();
  while (num_bytes_ > bytes_max_ && texts_.size() > 1) Thin();
}

void TextSample::Thin() {
  bar_ /= 2;
  num_bytes_ = 0;
  size_t num_kept = 0;
  // The lowest draw stays in any case: an empty sample would train nothing.
  const double lowest = *std::min_element(draws_.begin(), draws_.end());
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (draws_[i] >= bar_ && draws_[i] != lowest) continue;
    num_bytes_ += texts_[i].size();
    if (num_kept != i) texts_[num_kept] = std::move(texts_[i]);
    draws_[num_kept] = draws_[i];
    ++num_kept;
  }
  texts_.resize(num_kept);
  draws_.resize(num_kept);
}

}  // namespace cria::trainer

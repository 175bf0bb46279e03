// A sample of a corpus of any size in bounded memory, to train a tokenizer on.
//
//   TextSample sample(/*bytes_max=*/64 << 20, seed);
//   while (source.Next(&part)) sample.Add(part.text);
//   Train(sample.texts());
//
// Called by trainer/data/prepare.h. Text i has a draw in [0, 1) that depends on (seed, i) alone and
// is kept when the draw is below a bar. The bar starts at 1 (a small corpus is kept whole) and is
// halved whenever the kept texts exceed `bytes_max` (one text is always kept). So every text has
// the same chance, wherever it stands, and the result is the same in every run. Single-threaded.
// Memory: bytes_max and one text.

#ifndef CRIA_TRAINER_DATA_TEXT_SAMPLE_H_
#define CRIA_TRAINER_DATA_TEXT_SAMPLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace cria::trainer {

class TextSample {
 public:
  TextSample(uint64_t bytes_max, uint64_t seed);

  void Add(std::string_view text);

  // What was kept, in the order in which it came.
  const std::vector<std::string>& texts() const { return texts_; }
  uint64_t num_bytes() const { return num_bytes_; }
  uint64_t num_bytes_offered() const { return num_bytes_offered_; }

 private:
  void Thin();

  const uint64_t bytes_max_;
  const Rng rng_;
  double bar_ = 1;
  uint64_t num_offered_ = 0;
  uint64_t num_bytes_offered_ = 0;
  uint64_t num_bytes_ = 0;
  std::vector<std::string> texts_;
  std::vector<double> draws_;  // of texts_
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_TEXT_SAMPLE_H_

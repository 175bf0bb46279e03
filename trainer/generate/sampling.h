// From logits to the next token: repetition penalty, temperature, top-k, top-p, min-p, and one
// seeded random number.
//
//   TokenSampler sampler;
//   CRIA_RETURN_IF_ERROR(Validate(options));
//   const double u = UniformAt(options.seed, prompt_index, position);
//   CRIA_ASSIGN_OR_RETURN(const int32_t next, sampler.Sample(logits, history, options, u));
//
// The steps and their order are those of transformers' generate(), each on what the one before
// left:
//   1. repetition penalty: the logit of each token that occurs in the prompt or in what was
//      generated is divided by it when positive, multiplied when negative (fp32)
//   2. temperature: logits are divided by it. 0 ends here, with the largest (of equal ones the
//      lowest id)
//   3. top-k: tokens whose logit is less than the k-th largest go (equal ones to the k-th stay)
//   4. top-p: in descending order of probability (equal ones by id), tokens go whose predecessors
//      hold p of the mass already. The first always stays.
//   5. min-p: tokens go whose probability is less than min_p times the largest
// What stays is normalised, and u in [0, 1) chooses: candidates in order of their ids share [0, 1)
// by their probabilities. Softmax and sums are double.
//
// A random number is a function of (seed, prompt, position) alone: what else is in a batch, and
// where a sequence was interrupted, changes nothing.
//
// TokenSampler is Thread-compatible: an object a thread; it keeps scratch of the vocabulary's size.
// Cost: a pass over the logits when greedy; else an exp for each token that top-k leaves.

#ifndef CRIA_TRAINER_GENERATE_SAMPLING_H_
#define CRIA_TRAINER_GENERATE_SAMPLING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

struct SamplingOptions {
  double temperature = 0;         // 0: greedy
  int64_t top_k = 0;              // 0: all
  double top_p = 1;               // 1: all
  double min_p = 0;               // 0: all
  double repetition_penalty = 1;  // 1: none
  uint64_t seed = 0;
};

// InvalidArgument naming the option and its value: temperature negative, top_k negative, top_p or
// min_p outside [0, 1], a penalty not positive, anything not finite.
Status Validate(const SamplingOptions& options);

// The random number in [0, 1) for the token at `position` (0: the first of the prompt) of a prompt.
double UniformAt(uint64_t seed, uint64_t prompt_index, int64_t position);

class TokenSampler {
 public:
  struct Candidate {
    int32_t id = 0;
    double probability = 0;
  };

  // The token that follows `history` (prompt and generated, each id under logits.size()).
  // DataLoss when a logit is not finite, naming the first such token: a damaged or diverged model.
  StatusOr<int32_t> Sample(std::span<const float> logits, std::span<const int32_t> history,
                           const SamplingOptions& options, double u);

  // What Sample draws from: candidates in order of their ids, probabilities that add up to 1. Valid
  // until the next call.
  StatusOr<std::span<const Candidate>> Distribution(std::span<const float> logits,
                                                    std::span<const int32_t> history,
                                                    const SamplingOptions& options);

 private:
  void KeepTopK(int64_t top_k);
  void KeepTopP(double top_p, double min_p);

  std::vector<float> logits_;  // after the penalty
  std::vector<float> order_;   // scratch for the k-th largest
  std::vector<Candidate> candidates_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_GENERATE_SAMPLING_H_

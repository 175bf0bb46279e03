// Log-probabilities of the choices of multiple-choice questions.
//
//   ChoiceScorer scorer(decoder.get(), ops);
//   std::vector<std::vector<double>> log_probs = scorer.Score(tokens_of_four_questions);
//   log_probs[q][c]   // ln P(choice c | context of question q)
//
// Called by `cria eval`. A question's context runs once, into the cache; its choices continue
// copies of it, those of all questions of a call in one batch. Single-threaded; threads inside.

#ifndef CRIA_TRAINER_EVAL_CHOICE_SCORER_H_
#define CRIA_TRAINER_EVAL_CHOICE_SCORER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/llama/decoder.h"
#include "model/ops.h"
#include "trainer/eval/choice_tokens.h"

namespace cria::trainer {

class ChoiceScorer {
 public:
  // Both are borrowed.
  ChoiceScorer(model::LlamaDecoder* decoder, model::Ops* ops);

  // Questions whose choices, all together, are at most the decoder's max_sequences, each at most
  // max_positions long (checked).
  std::vector<std::vector<double>> Score(std::span<const ChoiceTokens> questions);

  // How many of the questions the first call may take.
  size_t CountThatFit(std::span<const ChoiceTokens> questions) const;

 private:
  // Tokens that continue a sequence; targets (as many, or none) are what they predict.
  struct Run {
    int64_t sequence = 0;
    std::vector<int32_t> tokens = {};
    std::span<const int32_t> targets = {};
    double* log_prob = nullptr;  // added to
  };
  void RunAll(const std::vector<Run>& runs);

  model::LlamaDecoder* const decoder_;
  model::Ops* const ops_;
  std::vector<int32_t> targets_;
  std::vector<float> losses_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_EVAL_CHOICE_SCORER_H_

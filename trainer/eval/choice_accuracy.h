// Accuracy over multiple-choice questions from the log-probabilities of their choices.
//
//   acc             the choice with the highest ln P is the answer
//   acc_norm        with the highest ln P / characters of the choice. Characters are code points,
//                   without the space before the choice: what lm-evaluation-harness divides by
//                   (`len(choice)`; its documentation says bytes, which is the same for ASCII)
//   acc_norm_token  with the highest ln P / tokens: what llm.c and build-nanogpt report as acc_norm
//
// Of equal choices the first counts. A standard error is that of a mean of n zeros and ones,
// sqrt(acc (1 - acc) / (n - 1)); NaN for n = 1.
//
// Called by `cria eval`. Thread-safe.

#ifndef CRIA_TRAINER_EVAL_CHOICE_ACCURACY_H_
#define CRIA_TRAINER_EVAL_CHOICE_ACCURACY_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cria::trainer {

struct ChoiceScores {
  std::vector<double> log_probs = {};    // of each choice
  std::vector<int64_t> characters = {};  // at least 1
  std::vector<int64_t> tokens = {};      // at least 1
  int64_t answer = 0;
};

// The index that each rule picks.
struct ChoicePicks {
  int64_t plain = 0, by_character = 0, by_token = 0;
};
ChoicePicks PickChoices(const ChoiceScores& scores);

struct Accuracy {
  double value = 0;
  double standard_error = 0;
};
struct ChoiceAccuracy {
  int64_t num_questions = 0;
  Accuracy acc, acc_norm, acc_norm_token;
};
ChoiceAccuracy MeasureAccuracy(std::span<const ChoiceScores> questions);

// Code points of UTF-8.
int64_t CountCharacters(std::string_view text);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_EVAL_CHOICE_ACCURACY_H_

#include "trainer/eval/choice_accuracy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace cria::trainer {
namespace {

// The first of the highest; a NaN, of a broken model, is never higher.
int64_t ArgMax(const std::vector<double>& values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best] || std::isnan(values[best])) best = i;
  }
  return static_cast<int64_t>(best);
}

int64_t ArgMaxPer(const std::vector<double>& log_probs, const std::vector<int64_t>& lengths) {
  CRIA_CHECK_EQ(log_probs.size(), lengths.size());
  std::vector<double> scaled(log_probs.size());
  for (size_t i = 0; i < scaled.size(); ++i) {
    CRIA_CHECK_GE(lengths[i], 1);
    scaled[i] = log_probs[i] / static_cast<double>(lengths[i]);
  }
  return ArgMax(scaled);
}

Accuracy AccuracyOf(int64_t right, int64_t count) {
  const auto n = static_cast<double>(count);
  const double mean = static_cast<double>(right) / n;
  return {.value = mean, .standard_error = std::sqrt(mean * (1 - mean) / (n - 1))};
}

}  // namespace

ChoicePicks PickChoices(const ChoiceScores& scores) {
  CRIA_CHECK(!scores.log_probs.empty());
  return {.plain = ArgMax(scores.log_probs),
          .by_character = ArgMaxPer(scores.log_probs, scores.characters),
          .by_token = ArgMaxPer(scores.log_probs, scores.tokens)};
}

ChoiceAccuracy MeasureAccuracy(std::span<const ChoiceScores> questions) {
  CRIA_CHECK(!questions.empty());
  int64_t plain = 0, by_character = 0, by_token = 0;
  for (const ChoiceScores& scores : questions) {
    const ChoicePicks picks = PickChoices(scores);
    plain += picks.plain == scores.answer;
    by_character += picks.by_character == scores.answer;
    by_token += picks.by_token == scores.answer;
  }
  const auto n = static_cast<int64_t>(questions.size());
  return {.num_questions = n,
          .acc = AccuracyOf(plain, n),
          .acc_norm = AccuracyOf(by_character, n),
          .acc_norm_token = AccuracyOf(by_token, n)};
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace cria::trainer

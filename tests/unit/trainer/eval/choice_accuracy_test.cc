#include "trainer/eval/choice_accuracy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cria::trainer {
namespace {

// Three rules, three picks: -6 is the highest sum, -8/8 the highest a character, -10/20 a token.
TEST(ChoiceAccuracyTest, EachRulePicksByItsOwnMeasure) {
  const ChoiceScores scores = {
      .log_probs = {-6, -8, -10}, .characters = {4, 8, 9}, .tokens = {2, 4, 20}, .answer = 1};
  const ChoicePicks picks = PickChoices(scores);
  EXPECT_EQ(picks.plain, 0);
  EXPECT_EQ(picks.by_character, 1);
  EXPECT_EQ(picks.by_token, 2);
}

TEST(ChoiceAccuracyTest, OfEqualChoicesTheFirstCounts) {
  const ChoiceScores scores = {
      .log_probs = {-4, -2, -2}, .characters = {2, 1, 1}, .tokens = {1, 1, 1}, .answer = 1};
  EXPECT_EQ(PickChoices(scores).plain, 1);
  EXPECT_EQ(PickChoices(scores).by_character, 0);
}

TEST(ChoiceAccuracyTest, ANotANumberIsNeverTheBest) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const ChoiceScores scores = {
      .log_probs = {nan, -9, nan}, .characters = {1, 1, 1}, .tokens = {1, 1, 1}, .answer = 1};
  EXPECT_EQ(PickChoices(scores).plain, 1);
}

// 3 of 4 right: the sample deviation of {1, 1, 1, 0} is 1/2, over sqrt(4) a quarter.
TEST(ChoiceAccuracyTest, TheStandardErrorIsThatOfAMeanOfZerosAndOnes) {
  const ChoiceScores right = {
      .log_probs = {-1, -2}, .characters = {1, 1}, .tokens = {1, 1}, .answer = 0};
  ChoiceScores wrong = right;
  wrong.answer = 1;
  const ChoiceAccuracy accuracy = MeasureAccuracy(std::vector{right, right, wrong, right});
  EXPECT_EQ(accuracy.num_questions, 4);
  EXPECT_DOUBLE_EQ(accuracy.acc.value, 0.75);
  EXPECT_DOUBLE_EQ(accuracy.acc.standard_error, 0.25);
  EXPECT_DOUBLE_EQ(accuracy.acc_norm.value, 0.75);
  EXPECT_DOUBLE_EQ(accuracy.acc_norm_token.value, 0.75);
  EXPECT_TRUE(std::isnan(MeasureAccuracy(std::vector{right}).acc.standard_error));
}

TEST(ChoiceAccuracyTest, CharactersAreCodePoints) {
  EXPECT_EQ(CountCharacters(""), 0);
  EXPECT_EQ(CountCharacters("abc"), 3);
  EXPECT_EQ(CountCharacters("\xc3\xa9\xe4\xb8\xad\xf0\x9f\xa6\x99"), 3);
}

}  // namespace
}  // namespace cria::trainer

#include "base/check.h"

#include <gtest/gtest.h>

namespace cria {
namespace {

TEST(CheckDeathTest, AbortsWithConditionAndValues) {
  EXPECT_DEATH(CRIA_CHECK(1 > 2, "offset ", 3), "check_test.cc:.*CHECK failed: 1 > 2: offset 3");
  const int rows = 4;
  EXPECT_DEATH(CRIA_CHECK_EQ(rows, 5), "CHECK failed: rows == 5: 4 against 5");
  EXPECT_DEATH(CRIA_CHECK_LT(rows, 4), "rows < 4: 4 against 4");
}

TEST(CheckTest, EvaluatesItsArgumentsOnce) {
  int calls = 0;
  const auto next = [&] { return ++calls; };
  CRIA_CHECK_EQ(next(), 1);
  CRIA_CHECK(next() == 2);
  CRIA_CHECK_GE(next(), 3);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace cria

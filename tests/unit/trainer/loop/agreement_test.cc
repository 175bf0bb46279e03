#include "trainer/loop/agreement.h"

#include <gtest/gtest.h>

#include <string>

#include "base/str.h"
#include "tests/support/comm_ranks.h"

namespace cria::trainer {
namespace {

TEST(AgreementTest, OneRankKnowsAll) {
  const Agreement alone(nullptr);
  EXPECT_EQ(*alone.Sum(7), 7);
  EXPECT_EQ(alone.First("x")->text, "x");
  const auto report = alone.Combine({.loss_sum = 0.1, .num_valid = 3, .stop = true});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->loss_sum, 0.1);
  EXPECT_TRUE(report->stop);
  EXPECT_FALSE(report->bad_operand);
}

TEST(AgreementTest, AllRanksKnowWhatOneKnew) {
  RunRankThreads({.ranks = 3}, [](comm::Communicator& world) {
    const Agreement agreement(&world);
    const int rank = world.rank();
    EXPECT_EQ(*agreement.Sum(1 << (8 * rank)), 0x010101);
    // Sums in rank order: (1e17 + 1) - 1e17 would be 0 in another.
    const double parts[] = {1e17, -1e17, 1.0};
    const auto report = agreement.Combine(
        {.loss_sum = parts[rank], .num_valid = rank, .bad_operand = rank == 1, .stop = rank == 2});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->loss_sum, 1.0);
    EXPECT_EQ(report->num_valid, 3);
    EXPECT_TRUE(report->bad_operand);
    EXPECT_TRUE(report->stop);
    // The first in order, whoever says it; nothing where nobody says anything.
    const auto first = agreement.First(rank == 0 ? "" : StrCat("name ", 9 - rank));
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->text, "name 7");
    EXPECT_EQ(first->rank, 2);
    EXPECT_EQ(agreement.First("")->text, "");
    EXPECT_EQ(agreement.First(std::string(1000, 'x'))->text.size(), 199u);
  });
}

}  // namespace
}  // namespace cria::trainer

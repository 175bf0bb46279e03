#include "trainer/checkpoint/common_status.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/comm_ranks.h"

namespace cria::trainer {
namespace {

TEST(CommonStatusTest, OneRankKeepsItsOwn) {
  EXPECT_TRUE(CommonStatus(nullptr, OkStatus()).ok());
  EXPECT_EQ(CommonStatus(nullptr, DataLossError("torn")), DataLossError("torn"));
  EXPECT_EQ(*CommonText(nullptr, "text"), "text");
}

TEST(CommonStatusTest, AllRanksGetTheErrorOfTheLowestRank) {
  RunRankThreads({.ranks = 5}, [](comm::Communicator& world) {
    EXPECT_TRUE(CommonStatus(&world, OkStatus()).ok());
    const Status mine = world.rank() == 2   ? ResourceExhaustedError("disk full")
                        : world.rank() == 4 ? NotFoundError("gone")
                                            : OkStatus();
    EXPECT_EQ(CommonStatus(&world, mine), ResourceExhaustedError("rank 2: disk full"));
    // Everybody is there for the next.
    EXPECT_TRUE(CommonStatus(&world, OkStatus()).ok());
  });
}

TEST(CommonStatusTest, LongMessagesAreCut) {
  RunRankThreads({.ranks = 2}, [](comm::Communicator& world) {
    const Status mine = world.rank() == 1 ? InternalError(std::string(100'000, 'x')) : OkStatus();
    const std::string message = Message(CommonStatus(&world, mine));
    EXPECT_GT(message.size(), 1000u);
    EXPECT_LT(message.size(), 1100u);
  });
}

TEST(CommonStatusTest, TextIsRankZeros) {
  RunRankThreads({.ranks = 3}, [](comm::Communicator& world) {
    EXPECT_EQ(*CommonText(&world, StrCat("of rank ", world.rank())), "of rank 0");
  });
}

}  // namespace
}  // namespace cria::trainer

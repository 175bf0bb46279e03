#include "comm/bench/board.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace cria::comm {
namespace {

std::string NewPath(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

TEST(BoardTest, GathersFromMoreRanksThanCores) {
  static constexpr int kRanks = 9;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([rank] {
      auto board = Board::Open(NewPath("gather"), rank, kRanks, 60);
      ASSERT_TRUE(board.ok()) << board.status();
      for (int round = 0; round < 100; ++round) {
        const auto all = board->Gather(rank * 1000 + round);
        ASSERT_TRUE(all.ok()) << all.status();
        for (int r = 0; r < kRanks; ++r) {
          ASSERT_EQ((*all)[static_cast<size_t>(r)], r * 1000 + round);
        }
        EXPECT_EQ(*board->Max(rank), kRanks - 1);
        EXPECT_EQ(*board->Sum(1), double{kRanks});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(BoardTest, EndsWaitingAtTheTimeOut) {
  auto board = Board::Open(NewPath("alone"), 0, 2, 0.1);
  ASSERT_TRUE(board.ok());
  const double start_s = RealClock()->MonotonicSeconds();
  EXPECT_EQ(board->Barrier().code(), StatusCode::kDeadlineExceeded);
  EXPECT_GE(RealClock()->MonotonicSeconds() - start_s, 0.1);
}

TEST(BoardTest, MeasuresAFlagsFlight) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([rank] {
      auto board = Board::Open(NewPath("flight"), rank, 3, 60);
      ASSERT_TRUE(board.ok());
      const auto seconds = board->FlagFlightSeconds();
      ASSERT_TRUE(seconds.ok()) << seconds.status();
      EXPECT_GT(*seconds, 1e-9);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cria::comm

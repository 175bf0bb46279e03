#include "comm/engine/failure.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace cria::comm {
namespace {

TEST(FailureStateTest, TheFirstReasonWins) {
  FailureState failure;
  EXPECT_FALSE(failure.failed());
  EXPECT_TRUE(failure.status().ok());
  EXPECT_TRUE(failure.Fail(UnavailableError("first")));
  EXPECT_FALSE(failure.Fail(CancelledError("second")));
  EXPECT_TRUE(failure.failed());
  EXPECT_EQ(failure.status().code(), StatusCode::kUnavailable);
}

TEST(FailureStateTest, ListenersHearItOnceAlsoWhenTheyComeLate) {
  FailureState failure;
  int early = 0, removed = 0, late = 0;
  failure.AddListener([&early](const Status&) { ++early; });
  const int id = failure.AddListener([&removed](const Status&) { ++removed; });
  failure.RemoveListener(id);
  failure.Fail(UnavailableError("x"));
  failure.Fail(UnavailableError("y"));
  failure.AddListener([&late](const Status& status) { late += status.ok() ? 0 : 1; });
  EXPECT_EQ(early, 1);
  EXPECT_EQ(removed, 0);
  EXPECT_EQ(late, 1);
}

TEST(FailureStateTest, ManyThreadsHaveOneFirst) {
  FailureState failure;
  std::atomic<int> firsts{0}, calls{0};
  failure.AddListener([&calls](const Status&) { ++calls; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&failure, &firsts] {
      if (failure.Fail(InternalError("x"))) ++firsts;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(firsts, 1);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace cria::comm

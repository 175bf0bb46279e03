#include "comm/api/work.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace cria::comm {
namespace {

TEST(WorkTest, ADefaultOneIsDone) {
  const Work work;
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(work.Wait().ok());
  EXPECT_EQ(work.sequence(), 0u);
}

TEST(WorkTest, HoldsItsOutcome) {
  const Work work(7, UnavailableError("gone"));
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.Wait().code(), StatusCode::kUnavailable);
  EXPECT_EQ(work.sequence(), 7u);
}

TEST(WorkTest, WaitsForAnotherThread) {
  auto state = std::make_shared<WorkState>();
  const Work work(1, state);
  const Work copy = work;
  EXPECT_FALSE(work.done());
  EXPECT_EQ(work.WaitFor(0.001).code(), StatusCode::kDeadlineExceeded);
  std::thread runner([state] { state->Finish(CancelledError("aborted")); });
  EXPECT_EQ(copy.Wait().code(), StatusCode::kCancelled);
  EXPECT_EQ(work.Wait().code(), StatusCode::kCancelled);  // more than once
  EXPECT_TRUE(work.done());
  runner.join();
}

}  // namespace
}  // namespace cria::comm

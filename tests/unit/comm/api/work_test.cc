#include "comm/api/work.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

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

// Counts waits by group.
class Waits : public debug::Observer {
 public:
  void OnEnqueue(const debug::OperationEvent&) override {}
  void OnStart(const debug::OperationEvent&) override {}
  void OnEnd(const debug::OperationEvent&, const Status&) override {}
  void OnWaitStart(uint64_t group_id) override { started.push_back(group_id); }
  void OnWaitEnd(uint64_t group_id) override { ended.push_back(group_id); }
  std::vector<uint64_t> started, ended;
};

TEST(WorkTest, TheObserverHearsOfWaitsForWhatIsNotOver) {
  Waits waits;
  auto state = std::make_shared<WorkState>(&waits, 9);
  const Work work(1, state);
  EXPECT_EQ(work.WaitFor(0.001).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(waits.started, std::vector<uint64_t>{9});
  EXPECT_EQ(waits.ended, std::vector<uint64_t>{9});
  state->Finish(OkStatus());
  EXPECT_TRUE(work.Wait().ok());
  EXPECT_EQ(waits.started.size(), 1U);
}

}  // namespace
}  // namespace cria::comm

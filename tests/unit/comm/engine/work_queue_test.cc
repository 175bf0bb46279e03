#include "comm/engine/work_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cria::comm {
namespace {

TEST(WorkQueueTest, RunsInOrderOnOneOtherThread) {
  WorkQueue queue;
  EXPECT_TRUE(queue.idle());
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  std::vector<Work> works;
  for (int i = 0; i < 20; ++i) {
    works.push_back(queue.Push(static_cast<uint64_t>(i), [i, &order, &threads] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
      return i == 13 ? InternalError("thirteen") : OkStatus();
    }));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(works[static_cast<size_t>(i)].Wait().ok(), i != 13);
    EXPECT_EQ(works[static_cast<size_t>(i)].sequence(), static_cast<uint64_t>(i));
  }
  EXPECT_TRUE(queue.idle());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_EQ(threads[static_cast<size_t>(i)], threads[0]);
    EXPECT_NE(threads[static_cast<size_t>(i)], std::this_thread::get_id());
  }
}

TEST(WorkQueueTest, TheDestructorWaitsForWhatIsPending) {
  int done = 0;
  std::vector<Work> works;
  {
    WorkQueue queue;
    for (int i = 0; i < 50; ++i) {
      works.push_back(queue.Push(1, [&done] {
        ++done;
        return OkStatus();
      }));
    }
  }
  EXPECT_EQ(done, 50);
  for (const Work& work : works) EXPECT_TRUE(work.done());
}

}  // namespace
}  // namespace cria::comm

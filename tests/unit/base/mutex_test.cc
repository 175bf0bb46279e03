#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.h"

namespace cria {
namespace {

class Counter {
 public:
  void Add() {
    MutexLock lock(&mu_);
    ++count_;
    changed_.NotifyAll();
  }
  // True when the count reached `target` within the deadline.
  bool WaitUntil(int target) {
    const double deadline_s = RealClock()->MonotonicSeconds() + 100;
    MutexLock lock(&mu_);
    // Every addition wakes this: counting wake-ups would be counting them.
    while (count_ < target && RealClock()->MonotonicSeconds() < deadline_s) {
      changed_.WaitFor(&mu_, 0.1);
    }
    return count_ == target;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int count_ CRIA_GUARDED_BY(mu_) = 0;
};

TEST(MutexTest, KeepsConcurrentAdditionsApart) {
  constexpr int kNumThreads = 4, kNumAdds = 20'000;
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kNumAdds; ++i) counter.Add();
    });
  }
  EXPECT_TRUE(counter.WaitUntil(kNumThreads * kNumAdds));
  for (std::thread& thread : threads) thread.join();
}

TEST(MutexTest, TryLockFailsWhileAnotherThreadHoldsIt) {
  Mutex mu;
  bool taken = true;
  {
    MutexLock lock(&mu);
    std::thread([&] { taken = mu.TryLock(); }).join();
  }
  EXPECT_FALSE(taken);
  ASSERT_TRUE(mu.TryLock());
  mu.Unlock();
}

TEST(MutexTest, WaitEndsAtItsDeadlineAndHoldsTheLockAgain) {
  Mutex mu;
  CondVar never;
  bool taken = true;
  MutexLock lock(&mu);
  while (never.WaitFor(&mu, 0.001)) {
    // A wake-up without a notification is allowed; the deadline comes nevertheless.
  }
  std::thread([&] { taken = mu.TryLock(); }).join();
  EXPECT_FALSE(taken);
}

}  // namespace
}  // namespace cria

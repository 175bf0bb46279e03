#include "base/stop_signals.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace cria {
namespace {

struct Seen {
  Mutex mutex;
  CondVar changed;
  std::vector<int> signals CRIA_GUARDED_BY(mutex);
  std::vector<std::thread::id> threads CRIA_GUARDED_BY(mutex);

  void Add(int signal_number) {
    const MutexLock lock(&mutex);
    signals.push_back(signal_number);
    threads.push_back(std::this_thread::get_id());
    changed.NotifyAll();
  }
  // False when it has not come by the deadline.
  bool WaitFor(int signal_number) {
    const double deadline_s = RealClock()->MonotonicSeconds() + 100;
    const MutexLock lock(&mutex);
    while (std::ranges::find(signals, signal_number) == signals.end()) {
      if (RealClock()->MonotonicSeconds() >= deadline_s) return false;
      changed.WaitFor(&mutex, 0.1);
    }
    return true;
  }
};

bool IsBlocked(int signal_number) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal_number) == 1;
}

bool IsPending(int signal_number) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal_number) == 1;
}

TEST(StopSignalsTest, GivesEachSignalToTheHandlerOnAThreadOfItsOwn) {
  Seen seen;
  StopSignals signals;
  signals.Take([&](int signal_number) { seen.Add(signal_number); });
  kill(getpid(), SIGINT);
  ASSERT_TRUE(seen.WaitFor(SIGINT));
  kill(getpid(), SIGTERM);
  ASSERT_TRUE(seen.WaitFor(SIGTERM));
  const MutexLock lock(&seen.mutex);
  EXPECT_EQ(seen.signals, (std::vector<int>{SIGINT, SIGTERM}));
  EXPECT_EQ(seen.threads[0], seen.threads[1]);
  EXPECT_NE(seen.threads[0], std::this_thread::get_id());
}

TEST(StopSignalsTest, AreBlockedInThisThreadAndInLaterOnes) {
  ASSERT_FALSE(IsBlocked(SIGINT));
  {
    const StopSignals signals;
    EXPECT_TRUE(IsBlocked(SIGINT));
    EXPECT_TRUE(IsBlocked(SIGTERM));
    EXPECT_FALSE(IsBlocked(SIGSEGV));
    std::atomic<bool> blocked{false};
    std::thread([&] { blocked = IsBlocked(SIGINT) && IsBlocked(SIGTERM); }).join();
    EXPECT_TRUE(blocked);
  }
  EXPECT_FALSE(IsBlocked(SIGINT));
  EXPECT_FALSE(IsBlocked(SIGTERM));
}

TEST(StopSignalsTest, ALaterHandlerTakesTheEarlierOnesPlace) {
  Seen first, second;
  StopSignals signals;
  signals.Take([&](int signal_number) { first.Add(signal_number); });
  signals.Take([&](int signal_number) { second.Add(signal_number); });
  kill(getpid(), SIGTERM);
  ASSERT_TRUE(second.WaitFor(SIGTERM));
  const MutexLock lock(&first.mutex);
  EXPECT_TRUE(first.signals.empty());
}

TEST(StopSignalsDeathTest, UntilTheyAreTakenASignalEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto wait_for_the_end = [] {
    const StopSignals signals;
    kill(getpid(), SIGINT);
    for (;;) pause();
  };
  EXPECT_EXIT(wait_for_the_end(), testing::KilledBySignal(SIGINT), "");
}

TEST(StopSignalsTest, ASignalThatTheProcessIgnoresStaysIgnored) {
  Seen seen;
  signal(SIGINT, SIG_IGN);
  {
    StopSignals signals;
    kill(getpid(), SIGINT);
    while (IsPending(SIGINT)) std::this_thread::yield();
    signals.Take([&](int signal_number) { seen.Add(signal_number); });
    kill(getpid(), SIGTERM);
    EXPECT_TRUE(seen.WaitFor(SIGTERM));
  }
  signal(SIGINT, SIG_DFL);
}

}  // namespace
}  // namespace cria

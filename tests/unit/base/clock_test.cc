#include "base/clock.h"

#include <gtest/gtest.h>

namespace cria {
namespace {

TEST(ClockTest, FakeStandsStillUntilAdvanced) {
  FakeClock clock(1000);
  EXPECT_EQ(clock.MonotonicSeconds(), 0);
  EXPECT_EQ(clock.UnixSeconds(), 1000);
  clock.Advance(2.5);
  EXPECT_EQ(clock.MonotonicSeconds(), 2.5);
  EXPECT_EQ(clock.UnixSeconds(), 1002.5);
}

TEST(ClockTest, RealNeverGoesBackAndKnowsTheCentury) {
  double last = RealClock()->MonotonicSeconds();
  for (int i = 0; i < 1000; ++i) {
    const double now = RealClock()->MonotonicSeconds();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(RealClock()->UnixSeconds(), 1.6e9);
}

}  // namespace
}  // namespace cria

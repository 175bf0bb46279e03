#include "comm/tcp/group_state.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/status.h"
#include "comm/engine/failure.h"

namespace cria::comm::tcp {
namespace {

const GroupInfo kGroup = {.name = "dp", .id = 5, .world_ranks = {0, 1}, .local_ranks = {0, 1}};

TEST(GroupStateTest, FailsTheGroupWithTheFirstNews) {
  FailureState failure;
  const auto state = GroupState::Create(kGroup, &failure);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_FALSE((*state)->failed_or_closed());
  (*state)->Fail(CancelledError("first"));
  (*state)->Fail(CancelledError("second"));
  EXPECT_TRUE((*state)->failed_or_closed());
  EXPECT_EQ(Message(failure.status()), "first");
}

TEST(GroupStateTest, LeavesTheFailureAloneOnceItIsClosed) {
  // The domain's thread may have found the group before its communicator went away.
  auto failure = std::make_unique<FailureState>();
  const auto state = GroupState::Create(kGroup, failure.get());
  ASSERT_TRUE(state.ok()) << state.status();
  (*state)->Close();
  (*state)->Fail(CancelledError("too late"));
  EXPECT_FALSE(failure->failed());
  failure.reset();
  (*state)->Fail(CancelledError("much too late"));
  EXPECT_TRUE((*state)->failed_or_closed());
}

}  // namespace
}  // namespace cria::comm::tcp

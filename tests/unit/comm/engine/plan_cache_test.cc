#include "comm/engine/plan_cache.h"

#include <gtest/gtest.h>

#include <array>

namespace cria::comm {
namespace {

class PlanCacheTest : public testing::Test {
 protected:
  const GroupTopology topology_ = {.host_of_rank = {0, 0, 0}};
  const AlgorithmOverrides no_overrides_;
  PlanCache cache_{&topology_, &no_overrides_, 1, false};
};

TEST_F(PlanCacheTest, TheSameOperationHasTheSamePlan) {
  const Operation operation{.kind = OpKind::kAllReduce, .count = 100};
  const auto first = cache_.Find(operation);
  ASSERT_TRUE(first.ok());
  const uint64_t digest = (*first)->plan.digest;
  EXPECT_EQ((*first)->plan.kind, OpKind::kAllReduce);
  EXPECT_EQ((*first)->plan.rank, 1);
  for (const int64_t count : {101, 100}) {
    Operation other = operation;
    other.count = count;
    EXPECT_EQ((*cache_.Find(other))->plan.digest == digest, count == 100);
  }
}

TEST_F(PlanCacheTest, CountsOfAVKindTellPlansApart) {
  const std::array<int64_t, 3> a = {1, 2, 3}, b = {1, 3, 2};
  Operation operation{.kind = OpKind::kAllGatherV, .recv_counts = a};
  const uint64_t digest = (*cache_.Find(operation))->plan.digest;
  operation.recv_counts = b;
  EXPECT_NE((*cache_.Find(operation))->plan.digest, digest);
  operation.recv_counts = a;
  EXPECT_EQ((*cache_.Find(operation))->plan.digest, digest);
}

TEST_F(PlanCacheTest, SurvivesManyShapes) {
  for (int64_t count = 1; count < 1200; ++count) {
    const auto plan = cache_.Find({.kind = OpKind::kBroadcast, .count = count, .root_or_peer = 0});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ((*plan)->plan.count, count);
  }
}

TEST(SplitByLinkTest, CutsWhereTheLinkChanges) {
  Plan plan;
  for (const LinkKind link : {LinkKind::kShm, LinkKind::kTcp, LinkKind::kTcp, LinkKind::kShm}) {
    plan.rounds.push_back({.link = link, .tasks = {}});
  }
  const auto stretches = SplitByLink(plan);
  ASSERT_EQ(stretches.size(), 3u);
  EXPECT_EQ(stretches[0].rounds.size(), 1u);
  EXPECT_EQ(stretches[1].link, LinkKind::kTcp);
  EXPECT_EQ(stretches[1].rounds.size(), 2u);
  EXPECT_EQ(stretches[2].link, LinkKind::kShm);
  EXPECT_TRUE(SplitByLink(Plan()).empty());
}

}  // namespace
}  // namespace cria::comm

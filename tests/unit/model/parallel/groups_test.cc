// Ranks are threads over the real transports: a group that its members see differently fails at its
// first operation.

#include "model/parallel/groups.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/support/comm_ranks.h"

namespace cria::model {
namespace {

LlamaConfig Model(bool tied) {
  LlamaConfig config;
  config.heads = 8;
  config.kv_heads = 2;
  config.tied_head = tied;
  return config;
}

std::vector<int> RanksOf(const Groups::Group& group) {
  return group == nullptr ? std::vector<int>{} : group->world_ranks();
}

// Two ranks or more, as a group has them; fewer are no group.
std::vector<int> Several(const std::vector<int>& ranks) {
  return ranks.size() < 2 ? std::vector<int>{} : ranks;
}

// Runs `body` on each rank with its groups.
void WithGroups(const Layout& layout, const LlamaConfig& config,
                const std::function<void(const Groups& groups)>& body) {
  RunRankThreads({.ranks = layout.world_size()}, [&](comm::Communicator& world) {
    const StatusOr<Groups> groups = MakeGroups(layout, config, &world);
    ASSERT_TRUE(groups.ok()) << Message(groups.status());
    body(*groups);
  });
}

// The sum of its members' world ranks, over the group.
void ExpectSum(const Groups::Group& group) {
  if (group == nullptr) return;
  int64_t expected = 0;
  for (const int rank : group->world_ranks()) expected += rank;
  int64_t sum = group->world_ranks()[static_cast<size_t>(group->rank())];
  const Status status =
      group->AllReduce({.input = &sum, .output = &sum, .count = 1, .dtype = comm::DataType::kInt64})
          .Wait();
  EXPECT_TRUE(status.ok()) << Message(status);
  EXPECT_EQ(sum, expected) << group->name();
}

// All ranks send along the pipeline before anybody receives.
void ExpectNeighbours(const Groups& groups, const Groups::Group& out, const Groups::Group& in) {
  const int64_t mine = groups.world->rank();
  comm::Work sent;
  if (out != nullptr) {
    ASSERT_EQ(out->rank(), 0);
    sent = out->Send({.buffer = &mine,
                      .count = 1,
                      .dtype = comm::DataType::kInt64,
                      .peer = 1,
                      .call = {.async = true}});
  }
  if (in != nullptr) {
    ASSERT_EQ(in->rank(), 1);
    int64_t got = -1;
    const Status status =
        in->Recv({.buffer = &got, .count = 1, .dtype = comm::DataType::kInt64, .peer = 0}).Wait();
    EXPECT_TRUE(status.ok()) << Message(status);
    EXPECT_EQ(got, in->world_ranks()[0]);
  }
  if (out != nullptr) {
    EXPECT_TRUE(sent.Wait().ok());
  }
}

std::vector<Layout> Layouts() {
  return {{},
          {.tp = 8},
          {.tp = 2, .cp = 2, .dp = 2},
          {.tp = 2, .pp = 2, .dp = 2},
          {.pp = 2, .dp = 2, .pp_chunks = 2},
          {.cp = 2, .pp = 3},
          {.pp = 4, .pp_chunks = 2}};
}

TEST(GroupsTest, MembersAreTheRanksAlongTheAxes) {
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(Name(layout));
    WithGroups(layout, Model(false), [&](const Groups& groups) {
      const int rank = groups.world->rank();
      EXPECT_EQ(groups.layout, layout);
      EXPECT_EQ(groups.at, CoordinatesOf(layout, rank));
      const auto along = [&](std::initializer_list<Axis> axes) {
        return Several(RanksAlong(layout, rank, axes));
      };
      EXPECT_EQ(RanksOf(groups.tp), along({Axis::kTp}));
      EXPECT_EQ(RanksOf(groups.cp), along({Axis::kCp}));
      EXPECT_EQ(RanksOf(groups.operands), along({Axis::kTp, Axis::kCp}));
      EXPECT_EQ(RanksOf(groups.replicas), along({Axis::kCp, Axis::kDp}));
      EXPECT_EQ(RanksOf(groups.weights), along({Axis::kCp, Axis::kDp}));
      EXPECT_EQ(RanksOf(groups.stage), along({Axis::kTp, Axis::kCp, Axis::kDp}));
      EXPECT_EQ(groups.tied, nullptr);
    });
  }
}

TEST(GroupsTest, AllGroupsOfALayoutWorkSideBySide) {
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(Name(layout));
    WithGroups(layout, Model(true), [](const Groups& groups) {
      for (const Groups::Group* group :
           {&groups.tp, &groups.cp, &groups.operands, &groups.replicas, &groups.weights,
            &groups.stage, &groups.kv, &groups.tied}) {
        ExpectSum(*group);
      }
      ExpectNeighbours(groups, groups.forward_out, groups.forward_in);
      ExpectNeighbours(groups, groups.backward_out, groups.backward_in);
    });
  }
}

TEST(GroupsTest, NeighboursShareKvHeads) {
  WithGroups({.tp = 8}, Model(false), [](const Groups& groups) {
    EXPECT_EQ(RanksOf(groups.kv),
              groups.at.tp < 4 ? (std::vector<int>{0, 1, 2, 3}) : (std::vector<int>{4, 5, 6, 7}));
  });
  WithGroups({.tp = 2, .dp = 2}, Model(false),
             [](const Groups& groups) { EXPECT_EQ(groups.kv, nullptr); });
}

TEST(GroupsTest, LinksGoFromSenderToReceiver) {
  // Ranks of stage p and replica d: p + 3 d.
  WithGroups({.pp = 3, .dp = 2}, Model(false), [](const Groups& groups) {
    const int p = groups.at.pp, rank = groups.world->rank();
    using Ranks = std::vector<int>;
    EXPECT_EQ(RanksOf(groups.forward_in), p > 0 ? (Ranks{rank - 1, rank}) : Ranks{});
    EXPECT_EQ(RanksOf(groups.forward_out), p < 2 ? (Ranks{rank, rank + 1}) : Ranks{});
    EXPECT_EQ(RanksOf(groups.backward_in), p < 2 ? (Ranks{rank + 1, rank}) : Ranks{});
    EXPECT_EQ(RanksOf(groups.backward_out), p > 0 ? (Ranks{rank, rank - 1}) : Ranks{});
  });
}

TEST(GroupsTest, ChunksCloseTheRing) {
  WithGroups({.pp = 3, .pp_chunks = 2}, Model(false), [](const Groups& groups) {
    const int p = groups.at.pp, before = (p + 2) % 3, after = (p + 1) % 3;
    using Ranks = std::vector<int>;
    EXPECT_EQ(RanksOf(groups.forward_in), (Ranks{before, p}));
    EXPECT_EQ(RanksOf(groups.forward_out), (Ranks{p, after}));
    EXPECT_EQ(RanksOf(groups.backward_in), (Ranks{after, p}));
    EXPECT_EQ(RanksOf(groups.backward_out), (Ranks{p, before}));
  });
}

TEST(GroupsTest, TheEndsShareATiedHead) {
  WithGroups({.tp = 2, .pp = 3}, Model(true), [](const Groups& groups) {
    const int tp = groups.at.tp;
    EXPECT_EQ(RanksOf(groups.tied),
              groups.at.pp == 1 ? std::vector<int>{} : (std::vector<int>{tp, 4 + tp}));
  });
  WithGroups({.tp = 2}, Model(true), [](const Groups& groups) { EXPECT_EQ(groups.tied, nullptr); });
}

TEST(GroupsTest, AnotherWorldSizeIsAnError) {
  RunRankThreads({.ranks = 2}, [](comm::Communicator& world) {
    const StatusOr<Groups> groups = MakeGroups({.tp = 2, .dp = 2}, Model(false), &world);
    EXPECT_EQ(groups.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Message(groups.status()), "layout tp2 cp1 pp1 dp2 is for 4 ranks; the world has 2");
  });
}

}  // namespace
}  // namespace cria::model

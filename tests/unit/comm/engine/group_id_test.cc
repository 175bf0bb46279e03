#include "comm/engine/group_id.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace cria::comm {
namespace {

TEST(GroupIdTest, DependsOnEverythingThatMakesAGroup) {
  const std::array<int, 3> ranks = {0, 2, 5};
  const std::array<int, 3> permuted = {0, 5, 2};
  const std::array<int, 2> fewer = {0, 2};
  const GroupKey key{.parent = 1, .name = "tp", .world_ranks = ranks};
  std::set<uint64_t> ids = {GroupId(key)};
  GroupKey other = key;
  other.parent = 2;
  ids.insert(GroupId(other));
  other = key;
  other.name = "cp";
  ids.insert(GroupId(other));
  other = key;
  other.world_ranks = permuted;
  ids.insert(GroupId(other));
  other.world_ranks = fewer;
  ids.insert(GroupId(other));
  other = key;
  other.instance = 1;
  ids.insert(GroupId(other));
  EXPECT_EQ(ids.size(), 6u);
  EXPECT_EQ(GroupId(key), GroupId({.parent = 1, .name = "tp", .world_ranks = ranks}));
}

}  // namespace
}  // namespace cria::comm

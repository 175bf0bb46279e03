#include "comm/engine/rank_map.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace cria::comm {
namespace {

TEST(RankMapTest, TheHostIsTheSameTwiceAndNamesTheMachine) {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  EXPECT_EQ(HostIdentity(), HostIdentity());
  EXPECT_EQ(HostIdentity().rfind(name.data(), 0), 0u);
}

}  // namespace
}  // namespace cria::comm

#include "comm/engine/rank_map.h"

#include <gtest/gtest.h>

namespace cria::comm {
namespace {

TEST(RankMapTest, TheHostIsTheSameTwiceAndNamesTheNetworkNamespace) {
  EXPECT_EQ(HostIdentity(), HostIdentity());
  EXPECT_NE(HostIdentity().find("net:["), std::string::npos);
}

}  // namespace
}  // namespace cria::comm

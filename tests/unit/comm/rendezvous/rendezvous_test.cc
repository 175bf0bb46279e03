#include "comm/rendezvous/rendezvous.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/unit/comm/rendezvous/job.h"

namespace cria::comm {
namespace {

class RendezvousTest : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(RendezvousTest, GivesAllRanksTheSameMap) {
  const auto [world_size, degree] = GetParam();
  ExpectAllHaveTheMap(
      RunJob({.world_size = world_size, .rendezvous = {.timeout_s = 120, .degree = degree}}));
}

INSTANTIATE_TEST_SUITE_P(RanksAndDegrees, RendezvousTest,
                         testing::Combine(testing::Values(1, 2, 3, 4, 7, 33, 65),
                                          testing::Values(2, 3, 16)));

}  // namespace
}  // namespace cria::comm

#include "comm/algorithms/parts.h"

#include <gtest/gtest.h>

namespace cria::comm {
namespace {

TEST(EvenPartTest, CutsWholeLinesAsEvenlyAsTheyGo) {
  // 10 elements in lines of 2: 5 lines for 4 parts.
  const int64_t offsets[] = {0, 4, 6, 8}, counts[] = {4, 2, 2, 2};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(EvenPart(10, 4, 2, i).offset, offsets[i]);
    EXPECT_EQ(EvenPart(10, 4, 2, i).count, counts[i]);
  }
}

TEST(EvenPartTest, CoversTheWholeForAllSizes) {
  const int64_t large = (int64_t{1} << 60) + 3;
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17},
                              int64_t{1000}, (int64_t{1} << 31) + 1, large}) {
    for (const int n : {1, 2, 3, 7, 64, 8192}) {
      for (const int64_t align : {1, 16, 64}) {
        int64_t next = 0;
        for (int i = 0; i < n; ++i) {
          const Part part = EvenPart(count, n, align, i);
          ASSERT_EQ(part.offset, next);
          ASSERT_GE(part.count, 0);
          ASSERT_LE(part.count, EvenPart(count, n, align, 0).count);
          if (part.count > 0) {
            ASSERT_EQ(part.offset % align, 0);
          }
          next += part.count;
        }
        ASSERT_EQ(next, count) << n << " parts, align " << align;
      }
    }
  }
}

TEST(PartsTest, JoinsNeighboursAndLeavesOutNothing) {
  const Parts parts = Parts::List({{0, 3}, {3, 2}, {5, 0}, {9, 1}});
  const std::vector<Part> all = parts.Of(0, 4);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].count, 5);
  EXPECT_EQ(all[1].offset, 9);
  EXPECT_TRUE(parts.Of(2).empty());
  EXPECT_EQ(parts.CountMax(), 3);
}

TEST(PartsTest, GivesAPositionSeveralPieces) {
  const Parts parts = Parts::Lists({{0, 2}, {8, 1}, {4, 4}}, {0, 2, 3});
  EXPECT_EQ(parts.size(), 2);
  EXPECT_EQ(parts.Count(0), 3);
  EXPECT_EQ(parts.Of(0).size(), 2u);
  EXPECT_EQ(parts.Start(1), 4);
}

}  // namespace
}  // namespace cria::comm

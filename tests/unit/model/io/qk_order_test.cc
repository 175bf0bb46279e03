#include "model/io/qk_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace cria::model {
namespace {

TEST(QkOrderTest, MovesNeighboursToHalvesOfTheirHead) {
  std::vector<int64_t> hf;
  for (int64_t row = 0; row < 12; ++row) hf.push_back(HfRowFromMeta(row, 6));
  EXPECT_EQ(hf, (std::vector<int64_t>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
}

// As the converters do it: rows viewed as [heads, 2, K/2], the last two axes swapped.
TEST(QkOrderTest, EqualsTheSwapOfTwoAxesForEveryHeadSize) {
  for (const int64_t head_dim : {2, 4, 6, 10, 16, 64, 128}) {
    const int64_t half = head_dim / 2;
    int64_t meta_row = 0;
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        for (int64_t part = 0; part < 2; ++part, ++meta_row) {
          const int64_t hf_row = head * head_dim + part * half + i;
          EXPECT_EQ(MetaRowFromHf(hf_row, head_dim), meta_row) << head_dim;
          EXPECT_EQ(HfRowFromMeta(meta_row, head_dim), hf_row) << head_dim;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cria::model

#include "comm/rendezvous/tree.h"

#include <gtest/gtest.h>

#include <vector>

namespace cria::comm {
namespace {

TEST(TreeShapeTest, ParentsChildrenAndSubtreesAgree) {
  for (const int degree : {2, 3, 16, 1000}) {
    for (const int num_ranks : {1, 2, 3, 4, 5, 16, 17, 272, 273, 1000}) {
      SCOPED_TRACE(testing::Message() << degree << " " << num_ranks);
      const TreeShape shape = {.num_ranks = num_ranks, .degree = degree};
      std::vector<int> size(static_cast<size_t>(num_ranks) + 1, 1);
      for (int position = num_ranks; position >= 1; --position) {
        const int parent = shape.Parent(position);
        ASSERT_LT(parent, position);
        ASSERT_GE(position, shape.FirstChild(parent));
        ASSERT_LT(position, shape.LastChild(parent));
        ASSERT_EQ(shape.Depth(position), parent == 0 ? 1 : shape.Depth(parent) + 1);
        size[static_cast<size_t>(parent)] += size[static_cast<size_t>(position)];
        ASSERT_EQ(shape.SubtreeSize(position), size[static_cast<size_t>(position)]);
        ASSERT_LE(shape.LastChild(position) - shape.FirstChild(position), degree);
      }
    }
  }
}

TEST(TreeShapeTest, IsLogarithmicallyDeep) {
  EXPECT_EQ((TreeShape{.num_ranks = 8192, .degree = 16}).Depth(8192), 4);
  EXPECT_EQ((TreeShape{.num_ranks = 98304, .degree = 16}).Depth(98304), 5);
  EXPECT_EQ((TreeShape{.num_ranks = 1 << 20, .degree = 2}).Depth(1 << 20), 20);
}

}  // namespace
}  // namespace cria::comm

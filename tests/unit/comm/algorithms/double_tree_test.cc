#include "comm/algorithms/double_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace cria::comm {
namespace {

TEST(TreeTest, EachNodeHangsUnderItsParentAndOddOnesAreInside) {
  for (int m = 1; m < 200; ++m) {
    int num_roots = 0, depth = 0;
    for (int node = 0; node < m; ++node) {
      const TreeNode found = FindTreeNode(m, node);
      depth = std::max(depth, found.depth);
      const bool inner = found.left >= 0 || found.right >= 0;
      EXPECT_EQ(inner, node % 2 == 1) << node << " of " << m;
      if (found.parent < 0) {
        ++num_roots;
        EXPECT_EQ(found.depth, 0);
        continue;
      }
      const TreeNode parent = FindTreeNode(m, found.parent);
      EXPECT_TRUE(parent.left == node || parent.right == node);
      EXPECT_EQ(found.depth, parent.depth + 1);
      EXPECT_EQ(parent.left == node, node < found.parent);
    }
    EXPECT_EQ(num_roots, 1);
    EXPECT_EQ(TreeDepth(m), depth) << m;
    EXPECT_LE(depth, static_cast<int>(std::log2(m)) + 1) << m;
  }
  EXPECT_EQ(TreeDepth(0), -1);
}

}  // namespace
}  // namespace cria::comm

// Double tree: two binary trees over the same ranks, each with half of the data; a rank that is
// inside one tree is a leaf of the other, so all links carry the same.
//
//   7 ranks    tree 0:     3            odd positions are inside, even ones are leaves
//                        /   \.
//                       1     5         tree 1: the same tree, where position i plays node i+1:
//                      / \   / \.       even positions are inside
//                     0   2 4   6
//
// Data flows in chunks: a node of depth d (D the deepest) adds its children's chunk k to its own in
// round k + D - 1 - d; all_reduce: chunk k comes back down in round k + D - 1 + d.
//
//   all_reduce         chunks + 2D - 1 rounds, 2 * bytes out of each rank
//   reduce, broadcast  chunks + D - 1 rounds, bytes out of each rank; the root is on top of both
//                      trees, which are of the other n-1 ranks
//
// D is floor(log2(n)) or one more. Wins where latency counts but bytes do too: log2(n) against the
// ring's n. A partial is added to at each level, in order of position, in float32 for 16-bit types;
// one rounding. Scratch: two chunks.
//
// Source: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
// scan", Parallel Computing 2009.

#ifndef CRIA_COMM_ALGORITHMS_DOUBLE_TREE_H_
#define CRIA_COMM_ALGORITHMS_DOUBLE_TREE_H_

#include "comm/algorithms/collective.h"

namespace cria::comm {

// A node of the tree of m nodes: odd nodes are inside, even ones are leaves; an interval's root is
// the odd node nearest to its middle.
struct TreeNode {
  int parent = -1;
  int left = -1;
  int right = -1;
  int depth = 0;
};
TreeNode FindTreeNode(int m, int node);  // O(log m)
// The greatest depth of a node, O(log m); -1 for an empty tree.
int TreeDepth(int m);

// Rounds of what BuildDoubleTree adds.
int DoubleTreeRounds(OpKind kind, int n, int num_chunks);

// kind: all_reduce, reduce, broadcast.
void BuildDoubleTree(const Collective& collective, PlanBuilder* builder);

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_DOUBLE_TREE_H_

#include "comm/algorithms/double_tree.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/algorithms/flat.h"

namespace cria::comm {
namespace {

constexpr int kNumTrees = 2;

// The root of an interval of m nodes, from its start (which is even): odd, or 0 for a leaf.
int Middle(int m) {
  const int half = m / 2;
  return m == 1 ? 0 : half % 2 == 1 ? half : half - 1;
}

// A position in one of the trees.
struct Member {
  int position = -1;  // -1: none
  int depth = 0;
  bool inner = false;
  int parent = -1;
  std::vector<int> children = {};  // ascending by node
  int num_before = 0;              // children that come before the position itself
};

// One of the two trees over a collective's positions; a root, where there is one, stands on top.
class Tree {
 public:
  Tree(const Collective& collective, int tree)
      : n_(collective.size()), root_(collective.root), shift_(tree) {
    m_ = root_ < 0 ? n_ : n_ - 1;
  }

  int depth() const { return TreeDepth(m_) + (root_ < 0 ? 0 : 1); }

  Member Find(int position) const {
    if (position < 0) return {};
    Member member;
    member.position = position;
    if (position == root_) {
      member.inner = true;
      member.children = {PositionOf(Middle(m_))};
      return member;
    }
    const int node = NodeOf(position);
    const TreeNode found = FindTreeNode(m_, node);
    member.depth = found.depth + (root_ < 0 ? 0 : 1);
    member.parent = found.parent >= 0 ? PositionOf(found.parent) : root_;
    for (const int child : {found.left, found.right}) {
      if (child < 0) continue;
      member.children.push_back(PositionOf(child));
      if (child < node) ++member.num_before;
    }
    member.inner = !member.children.empty();
    return member;
  }

 private:
  // Positions but the root's, counted from the one after it; the second tree is shifted by one.
  int NodeOf(int position) const {
    const int index = root_ < 0 ? position : (position - root_ - 1 + n_) % n_;
    return (index + shift_) % m_;
  }
  int PositionOf(int node) const {
    const int index = (node - shift_ + m_) % m_;
    return root_ < 0 ? index : (index + root_ + 1) % n_;
  }

  const int n_;
  const int root_;
  const int shift_;
  int m_ = 0;
};

class TreeBuilder {
 public:
  TreeBuilder(const Collective& collective, int tree, int first, PlanBuilder* builder)
      : c_(collective), tree_(collective, tree), builder_(builder), first_(first) {
    half_ = EvenPart(c_.count, kNumTrees, c_.align, tree);
    // The same on both trees: their scratch is one.
    slot_elements_ =
        EvenPart(EvenPart(c_.count, kNumTrees, c_.align, 0).count, c_.num_chunks, c_.align, 0)
            .count;
  }

  void Reduce() {
    const Member self = tree_.Find(c_.self);
    if (self.inner && self.parent >= 0) {
      builder_->NeedScratch(c_.scratch_offset + 2 * slot_elements_);
    }
    for (const int owner : Ascending({self.inner ? self.position : -1, self.parent})) {
      const Member member = owner == c_.self ? self : tree_.Find(owner);
      for (int chunk = 0; chunk < c_.num_chunks; ++chunk) AddReduce(member, chunk);
    }
  }

  // Chunk k leaves the top in round `start` + k.
  void Broadcast(int start) {
    const Member self = tree_.Find(c_.self);
    std::vector<int> owners = self.children;
    if (self.parent >= 0) owners.push_back(self.position);
    for (const int owner : Ascending(std::move(owners))) {
      const Member member = owner == c_.self ? self : tree_.Find(owner);
      for (int chunk = 0; chunk < c_.num_chunks; ++chunk) {
        const Part piece = Piece(chunk);
        const Region source = member.parent == c_.root ? c_.Input(member.parent, piece.offset)
                                                       : c_.Output(member.parent, piece.offset);
        builder_->Add(first_ + start + chunk + member.depth - 1,
                      {.owner = c_.rank(owner),
                       .count = piece.count,
                       .sources = {source},
                       .targets = {c_.Output(owner, piece.offset)}});
      }
    }
  }

 private:
  static std::vector<int> Ascending(std::vector<int> positions) {
    std::erase(positions, -1);
    std::sort(positions.begin(), positions.end());
    return positions;
  }

  Part Piece(int chunk) const {
    const Part piece = EvenPart(half_.count, c_.num_chunks, c_.align, chunk);
    return {half_.offset + piece.offset, piece.count};
  }

  // What a child holds of a chunk: a leaf its input, an inner node a partial.
  Region ValueOf(int child, int chunk, int64_t offset) const {
    return tree_.Find(child).inner ? Slot(child, chunk) : c_.Input(child, offset);
  }
  Region Slot(int position, int chunk) const {
    return c_.Scratch(position, (chunk % 2) * slot_elements_);
  }

  void AddReduce(const Member& member, int chunk) {
    const Part piece = Piece(chunk);
    Task task{
        .owner = c_.rank(member.position), .count = piece.count, .sources = {}, .targets = {}};
    for (int i = 0; i <= static_cast<int>(member.children.size()); ++i) {
      if (i == member.num_before) task.sources.push_back(c_.Input(member.position, piece.offset));
      if (i < static_cast<int>(member.children.size())) {
        task.sources.push_back(
            ValueOf(member.children[static_cast<size_t>(i)], chunk, piece.offset));
      }
    }
    task.targets = {member.parent < 0 ? c_.Output(member.position, piece.offset)
                                      : Slot(member.position, chunk)};
    builder_->Add(first_ + chunk + tree_.depth() - 1 - member.depth, std::move(task));
  }

  const Collective& c_;
  const Tree tree_;
  PlanBuilder* const builder_;
  const int first_;
  Part half_;
  int64_t slot_elements_ = 0;
};

}  // namespace

TreeNode FindTreeNode(int m, int node) {
  TreeNode found;
  int start = 0;
  int size = m;
  for (int middle = Middle(size); start + middle != node; middle = Middle(size)) {
    found.parent = start + middle;
    ++found.depth;
    if (node < start + middle) {
      size = middle;
    } else {
      start += middle + 1;
      size -= middle + 1;
    }
  }
  const int middle = Middle(size);
  if (middle > 0) found.left = start + Middle(middle);
  if (size > middle + 1) found.right = node + 1 + Middle(size - middle - 1);
  return found;
}

int TreeDepth(int m) {
  int depth = -1;
  // The larger side is the deeper one.
  for (; m > 0; m = std::max(Middle(m), m - Middle(m) - 1)) ++depth;
  return depth;
}

int DoubleTreeRounds(OpKind kind, int n, int num_chunks) {
  if (n == 1) return kFlatRounds;
  switch (kind) {
    case OpKind::kAllReduce:
      return num_chunks + 2 * TreeDepth(n) - 1;
    default:
      return num_chunks + TreeDepth(n - 1);
  }
}

void BuildDoubleTree(const Collective& c, PlanBuilder* builder) {
  const int n = c.size();
  if (n == 1) return BuildFlat(c, builder);
  const int first = builder->AddRounds(DoubleTreeRounds(c.kind, n, c.num_chunks), c.link);
  if (c.self < 0) return;
  for (int t = 0; t < kNumTrees; ++t) {
    TreeBuilder tree(c, t, first, builder);
    switch (c.kind) {
      case OpKind::kAllReduce:
        tree.Reduce();
        tree.Broadcast(TreeDepth(n));
        break;
      case OpKind::kReduce:
        tree.Reduce();
        break;
      case OpKind::kBroadcast:
        tree.Broadcast(0);
        break;
      default:
        CRIA_CHECK(false, "double_tree has no ", Name(c.kind));
    }
  }
}

}  // namespace cria::comm

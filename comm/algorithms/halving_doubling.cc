#include "comm/algorithms/halving_doubling.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/algorithms/flat.h"

namespace cria::comm {
namespace {

int Log2(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }

// Positions of 2^k groups of one or two neighbours; the first of a group is its leader.
struct Groups {
  explicit Groups(int n) : steps(Log2(n)), num(1 << steps), num_pairs(n - num) {}

  int Leader(int group) const { return group + std::min(group, num_pairs); }
  int End(int group) const { return Leader(group + 1); }
  int Of(int position) const {
    return position < 2 * num_pairs ? position / 2 : position - num_pairs;
  }

  const int steps;
  const int num;
  const int num_pairs;
};

class HalvingBuilder {
 public:
  HalvingBuilder(const Collective& collective, int first, PlanBuilder* builder)
      : c_(collective), builder_(builder), first_(first), groups_(c_.size()) {
    self_group_ = groups_.Of(c_.self);
  }

  // --- all_reduce, reduce, broadcast: cut into one part a group, in the order of its bits
  // reversed, so that what a group holds after each step is one range.

  // `finish_at`: the position whose output takes the parts; -1: each leader's own.
  void HalveWhole(int finish_at) {
    const int64_t half = Held(0, 1).count;
    if (groups_.steps > 1) builder_->NeedScratch(c_.scratch_offset + half);
    for (int step = 0; step < groups_.steps; ++step) {
      const bool last = step == groups_.steps - 1;
      for (const int group : last&& finish_at == c_.self ? AllGroups() : Pair(1 << step)) {
        const Part piece = Held(group, step + 1);
        const int owner = groups_.Leader(group);
        const int to = finish_at < 0 ? owner : finish_at;
        const auto scratch = [&](int position) {
          return c_.Scratch(position, piece.offset - Held(group, 1).offset);
        };
        Add(step, owner, piece.count,
            step == 0 ? InputsOf(group, 1, piece.offset) : Ordered(group, 1 << step, scratch),
            {last ? c_.Output(to, piece.offset) : scratch(owner)});
      }
    }
  }

  // From round `at` on: the leaders' parts of the output to all outputs.
  void DoubleWhole(int at) {
    for (int step = groups_.steps - 1; step >= 0; --step, ++at) {
      for (const int group : Pair(1 << step)) {
        const int partner = group ^ (1 << step);
        Pull(at, groups_.Leader(group), groups_.Leader(partner), Held(partner, step + 1));
        if (step > 0) continue;
        for (int other = groups_.Leader(group) + 1; other < groups_.End(group); ++other) {
          Pull(at, other, groups_.Leader(group), Held(group, 1));
          Pull(at, other, groups_.Leader(partner), Held(partner, 1));
        }
      }
    }
  }

  // Round 0 of a broadcast: each leader takes its part from the root.
  void ScatterFromRoot() {
    const bool all = c_.self == c_.root;
    for (int group = all ? 0 : self_group_; group < (all ? groups_.num : self_group_ + 1);
         ++group) {
      Pull(0, groups_.Leader(group), c_.root, Held(group, groups_.steps));
    }
  }

  void RecursiveDoubling() {
    builder_->NeedScratch(c_.scratch_offset + 2 * c_.count);
    for (int step = 0; step < groups_.steps; ++step) {
      const auto slot = [&](int position, int of_step) {
        return c_.Scratch(position, (of_step % 2) * c_.count);
      };
      for (const int group : Pair(1 << step)) {
        std::vector<Region> targets;
        for (int i = groups_.Leader(group); i < groups_.End(group); ++i) {
          if (step == groups_.steps - 1) targets.push_back(c_.Output(i, 0));
        }
        const int owner = groups_.Leader(group);
        if (targets.empty()) targets = {slot(owner, step)};
        const auto before = [&](int position) { return slot(position, step - 1); };
        Add(step, owner, c_.count,
            step == 0 ? InputsOf(group, 1, 0) : Ordered(group, 1 << step, before),
            std::move(targets));
      }
    }
  }

  // --- reduce_scatter, all_gather: the positions' own parts, halves in order of position.

  void HalveParts() {
    const std::vector<int64_t> starts = Starts();
    const int half = groups_.num / 2;
    if (groups_.steps > 1) {
      const auto size = [&](int from, int to) {
        return starts[static_cast<size_t>(groups_.Leader(to))] -
               starts[static_cast<size_t>(groups_.Leader(from))];
      };
      builder_->NeedScratch(c_.scratch_offset + std::max(size(0, half), size(half, groups_.num)));
    }
    for (int step = 0; step < groups_.steps; ++step) {
      const int distance = groups_.num >> (step + 1);
      for (const int group : Pair(distance)) {
        const int begin = group / distance * distance;
        // Scratch holds the half of the first step.
        const int64_t origin = starts[static_cast<size_t>(groups_.Leader(group / half * half))];
        if (step == groups_.steps - 1) {
          for (int i = groups_.Leader(group); i < groups_.End(group); ++i) {
            HalveRange(step, group, distance, i, i + 1, starts[static_cast<size_t>(i)] - origin,
                       /*last=*/true);
          }
        } else {
          const int from = groups_.Leader(begin);
          HalveRange(step, group, distance, from, groups_.Leader(begin + distance),
                     starts[static_cast<size_t>(from)] - origin, /*last=*/false);
        }
      }
    }
  }

  void DoubleParts() {
    // Each rank's own input, read by one task alone: it may lie in the output.
    for (const int group : Pair(1)) {
      for (int i = groups_.Leader(group); i < groups_.End(group); ++i) {
        for (const Part& piece : c_.parts.Of(i)) Push(i, group, piece);
      }
    }
    for (int step = 1; step < groups_.steps; ++step) {
      const int distance = 1 << step;
      for (const int group : Pair(distance)) {
        const int partner = group ^ distance;
        PullParts(step, groups_.Leader(group), partner, distance);
        if (step < groups_.steps - 1) continue;
        for (int other = groups_.Leader(group) + 1; other < groups_.End(group); ++other) {
          PullParts(step, other, group, distance);
          PullParts(step, other, partner, distance);
        }
      }
    }
  }

 private:
  // This rank's group and its partner, ascending: the groups whose tasks concern this rank.
  std::vector<int> Pair(int distance) const {
    const int partner = self_group_ ^ distance;
    return {std::min(self_group_, partner), std::max(self_group_, partner)};
  }

  std::vector<int> AllGroups() const {
    std::vector<int> groups;
    for (int group = 0; group < groups_.num; ++group) groups.push_back(group);
    return groups;
  }

  // What a group holds after `steps` halvings of the whole.
  Part Held(int group, int steps) const {
    int begin = 0;
    for (int step = 0; step < steps; ++step) {
      if ((group >> step) & 1) begin += groups_.num >> (step + 1);
    }
    const int end = begin + (groups_.num >> steps) - 1;
    const Part first = EvenPart(c_.count, groups_.num, c_.align, begin);
    const Part last = EvenPart(c_.count, groups_.num, c_.align, end);
    return {first.offset, last.offset + last.count - first.offset};
  }

  // The inputs of all members of a group and its partner, in order of position.
  std::vector<Region> InputsOf(int group, int distance, int64_t offset) const {
    std::vector<Region> inputs;
    const int partner = group ^ distance;
    for (const int g : {std::min(group, partner), std::max(group, partner)}) {
      for (int i = groups_.Leader(g); i < groups_.End(g); ++i) {
        inputs.push_back(c_.Input(i, offset));
      }
    }
    return inputs;
  }

  // The same region of both leaders, the lower group's first.
  template <typename RegionOf>
  std::vector<Region> Ordered(int group, int distance, const RegionOf& region_of) const {
    const int partner = group ^ distance;
    return {region_of(groups_.Leader(std::min(group, partner))),
            region_of(groups_.Leader(std::max(group, partner)))};
  }

  // Where each position's part starts when they lie one after another.
  std::vector<int64_t> Starts() const {
    std::vector<int64_t> starts = {0};
    for (int i = 0; i < c_.size(); ++i) starts.push_back(starts.back() + c_.parts.Count(i));
    return starts;
  }

  // One step of a reduce_scatter for the parts [from, to), which start at `at` in scratch.
  void HalveRange(int step, int group, int distance, int from, int to, int64_t at, bool last) {
    const int owner = groups_.Leader(group);
    for (const Part& piece : c_.parts.Of(from, to)) {
      const auto scratch = [&](int position) { return c_.Scratch(position, at); };
      Add(step, owner, piece.count,
          step == 0 ? InputsOf(group, distance, piece.offset) : Ordered(group, distance, scratch),
          {last ? c_.Output(from, piece.offset) : scratch(owner)});
      at += piece.count;
    }
  }

  void Push(int position, int group, const Part& piece) {
    const Region source = c_.Input(position, piece.offset);
    std::vector<Region> targets;
    for (const int to : {position, groups_.Leader(group), groups_.Leader(group ^ 1)}) {
      const Region target = c_.Output(to, piece.offset);
      const bool there =
          SamePlace(target, source) || (!targets.empty() && SamePlace(target, targets[0]));
      if (!there) targets.push_back(target);
    }
    Add(0, position, piece.count, {source}, std::move(targets));
  }

  // What the groups around `group` (of 2^k, `distance`) hold, but for the target's own part.
  void PullParts(int step, int to, int group, int distance) {
    const int begin = group / distance * distance;
    const int from = groups_.Leader(begin);
    const int end = groups_.Leader(begin + distance);
    std::vector<Part> pieces;
    if (to >= from && to < end) {
      pieces = c_.parts.Of(from, to);
      const std::vector<Part> rest = c_.parts.Of(to + 1, end);
      pieces.insert(pieces.end(), rest.begin(), rest.end());
    } else {
      pieces = c_.parts.Of(from, end);
    }
    for (const Part& piece : pieces) Pull(step, to, groups_.Leader(group), piece);
  }

  // A broadcast's root has everything in its input, and takes nothing.
  void Pull(int step, int to, int from, const Part& piece) {
    if (to == c_.root) return;
    Add(step, to, piece.count,
        {from == c_.root ? c_.Input(from, piece.offset) : c_.Output(from, piece.offset)},
        {c_.Output(to, piece.offset)});
  }

  void Add(int step, int owner, int64_t count, std::vector<Region> sources,
           std::vector<Region> targets) {
    builder_->Add(first_ + step, {.owner = c_.rank(owner),
                                  .count = count,
                                  .sources = std::move(sources),
                                  .targets = std::move(targets)});
  }

  const Collective& c_;
  PlanBuilder* const builder_;
  const int first_;
  const Groups groups_;
  int self_group_ = 0;
};

}  // namespace

int HalvingDoublingRounds(OpKind kind, int n, bool recursive_doubling) {
  if (n == 1) return kFlatRounds;
  const int steps = Log2(n);
  switch (kind) {
    case OpKind::kAllReduce:
      return recursive_doubling ? steps : 2 * steps;
    case OpKind::kBroadcast:
      return 1 + steps;
    default:
      return steps;
  }
}

void BuildHalvingDoubling(const Collective& c, PlanBuilder* builder) {
  const int n = c.size();
  // With one step there is nothing to double: all_gather is flat.
  if (n == 1 || (c.kind == OpKind::kAllGather && n < 4)) return BuildFlat(c, builder);
  CRIA_CHECK(!c.recursive_doubling || n >= 4, "recursive doubling of ", n, " ranks");
  const int first =
      builder->AddRounds(HalvingDoublingRounds(c.kind, n, c.recursive_doubling), c.link);
  if (c.self < 0) return;
  HalvingBuilder halving(c, first, builder);
  switch (c.kind) {
    case OpKind::kAllReduce:
      if (c.recursive_doubling) return halving.RecursiveDoubling();
      halving.HalveWhole(-1);
      return halving.DoubleWhole(Log2(n));
    case OpKind::kReduce:
      return halving.HalveWhole(c.root);
    case OpKind::kBroadcast:
      halving.ScatterFromRoot();
      return halving.DoubleWhole(1);
    case OpKind::kReduceScatter:
      return halving.HalveParts();
    case OpKind::kAllGather:
      return halving.DoubleParts();
    default:
      CRIA_CHECK(false, "halving_doubling has no ", Name(c.kind));
  }
}

}  // namespace cria::comm

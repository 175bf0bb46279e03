#include "comm/algorithms/pairwise.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace cria::comm {
namespace {

// Which round (from `first` on) carries what `source` has for `target`, and how many there are.
class Rounds {
 public:
  Rounds(int n, Schedule schedule, LinkKind link, const std::function<int(int)>& host_of,
         PlanBuilder* builder)
      : schedule_(schedule), n_(n), host_of_(host_of) {
    switch (schedule) {
      case Schedule::kFlat:
        first_ = builder->AddRounds(1, link);
        return;
      case Schedule::kPairwise:
        first_ = builder->AddRounds(std::max(n - 1, 1), link);
        return;
      case Schedule::kHierarchical:
        first_ = builder->AddRounds(1, link);
        builder->AddRounds(1, LinkKind::kTcp);
        return;
    }
  }

  int Of(int source, int target) const {
    switch (schedule_) {
      case Schedule::kFlat:
        return first_;
      case Schedule::kPairwise: {
        const int distance = (target - source + n_) % n_;
        return first_ + std::max(distance, 1) - 1;  // to itself: with the first
      }
      case Schedule::kHierarchical:
        return first_ + (host_of_(source) == host_of_(target) ? 0 : 1);
    }
    return first_;
  }

 private:
  const Schedule schedule_;
  const int n_;
  const std::function<int(int)> host_of_;
  int first_ = 0;
};

// Calls visit(source, target) for the pairs that `self` is in, in the order that all ranks share:
// by distance, then by target.
template <typename Visit>
void EachPair(int self, int n, Visit&& visit) {
  visit(self, self);
  for (int distance = 1; distance < n; ++distance) {
    const int before = (self - distance + n) % n;
    const int after = (self + distance) % n;
    if (after < self) visit(self, after);
    visit(before, self);
    if (after > self) visit(self, after);
  }
}

void AddTransfer(const Collective& c, int source, int target, int round, PlanBuilder* builder) {
  // all_to_all: part `target` of the source becomes part `source` of the target; else the part is
  // that of the rank that is not the root.
  const bool all_to_all = c.kind == OpKind::kAllToAll;
  const int read = c.kind == OpKind::kGather ? source : target;
  const int written = all_to_all ? source : read;
  const std::vector<Part> pieces = c.parts.Of(read);
  if (pieces.empty()) return;
  const int64_t from = pieces[0].offset;
  const int64_t to = c.parts.Start(written);
  // Work for everyone: a gather is done by the sources, the others by the targets.
  builder->Add(round, {.owner = c.rank(c.kind == OpKind::kGather ? source : target),
                       .count = pieces[0].count,
                       .sources = {c.Input(source, from)},
                       .targets = {c.Output(target, to)}});
}

}  // namespace

void BuildTransfers(const Collective& c, Schedule schedule, std::span<const int> host_of_rank,
                    PlanBuilder* builder) {
  const bool all_to_all = c.kind == OpKind::kAllToAll;
  CRIA_CHECK(all_to_all || c.kind == OpKind::kGather || c.kind == OpKind::kScatter,
             "pairwise has no ", Name(c.kind));
  const auto host_of = [&](int i) { return host_of_rank[static_cast<size_t>(c.rank(i))]; };
  const Rounds rounds(c.size(), schedule, c.link, host_of, builder);
  if (c.self < 0) return;
  EachPair(c.self, c.size(), [&](int source, int target) {
    if (c.kind == OpKind::kGather && target != c.root) return;
    if (c.kind == OpKind::kScatter && source != c.root) return;
    AddTransfer(c, source, target, rounds.Of(source, target), builder);
  });
}

}  // namespace cria::comm

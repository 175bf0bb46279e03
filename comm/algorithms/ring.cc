#include "comm/algorithms/ring.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/algorithms/flat.h"

namespace cria::comm {
namespace {

class RingBuilder {
 public:
  RingBuilder(const Collective& collective, const Parts& parts, PlanBuilder* builder)
      : c_(collective), parts_(parts), builder_(builder), n_(collective.size()) {}

  // n-1 rounds from `first` on; position i finishes part i, to `finish_at`'s output (-1: its own).
  void ReduceScatter(int first, int finish_at) {
    const int64_t slot_elements = parts_.CountMax();
    if (n_ > 2) builder_->NeedScratch(c_.scratch_offset + 2 * slot_elements);
    for (int step = 0; step < n_ - 1; ++step) {
      const bool last = step == n_ - 2;
      for (const int owner : Owners(last ? finish_at : -1)) {
        const int before = Mod(owner - 1);
        int64_t at = 0;  // in the slot of scratch
        for (const Part& piece : parts_.Of(Mod(owner - 2 - step))) {
          const Region theirs = step == 0 ? c_.Input(before, piece.offset)
                                          : Slot(before, step - 1, slot_elements, at);
          const Region target = last ? c_.Output(finish_at < 0 ? owner : finish_at, piece.offset)
                                     : Slot(owner, step, slot_elements, at);
          Add(first + step, owner, piece.count, {theirs, c_.Input(owner, piece.offset)}, {target});
          at += piece.count;
        }
      }
    }
  }

  // n-1 rounds from `first` on; position i starts with part i, in its input or (from_output) in
  // its output.
  void AllGather(int first, bool from_output) {
    // The first hop is the sender's task: it alone reads its input, which may be its output.
    const auto [low, high] = std::minmax({Mod(c_.self - 1), c_.self});
    for (const int owner : {low, high}) Push(first, owner, from_output);
    for (int step = 1; step < n_ - 1; ++step) {
      for (const int owner : Owners(-1)) {
        const int before = Mod(owner - 1);
        for (const Part& piece : parts_.Of(Mod(owner - 1 - step))) {
          Add(first + step, owner, piece.count, {c_.Output(before, piece.offset)},
              {c_.Output(owner, piece.offset)});
        }
      }
    }
  }

 private:
  int Mod(int position) const { return ((position % n_) + n_) % n_; }

  Region Slot(int position, int step, int64_t slot_elements, int64_t at) const {
    return c_.Scratch(position, (step % 2) * slot_elements + at);
  }

  // The owners of the tasks in which this rank takes part when each task is the receiver's:
  // itself and the next, or everyone where the results go to this rank; ascending.
  std::vector<int> Owners(int finish_at) const {
    std::vector<int> owners;
    if (finish_at == c_.self) {
      for (int i = 0; i < n_; ++i) owners.push_back(i);
      return owners;
    }
    owners = {c_.self, Mod(c_.self + 1)};
    std::sort(owners.begin(), owners.end());
    return owners;
  }

  void Push(int round, int owner, bool from_output) {
    for (const Part& piece : parts_.Of(owner)) {
      const Region source =
          from_output ? c_.Output(owner, piece.offset) : c_.Input(owner, piece.offset);
      const Region own = c_.Output(owner, piece.offset);
      std::vector<Region> targets;
      if (!SamePlace(source, own)) targets.push_back(own);
      if (n_ > 1) targets.push_back(c_.Output(Mod(owner + 1), piece.offset));
      Add(round, owner, piece.count, {source}, std::move(targets));
    }
  }

  void Add(int round, int owner, int64_t count, std::vector<Region> sources,
           std::vector<Region> targets) {
    builder_->Add(round, {.owner = c_.rank(owner),
                          .count = count,
                          .sources = std::move(sources),
                          .targets = std::move(targets)});
  }

  const Collective& c_;
  const Parts& parts_;
  PlanBuilder* const builder_;
  const int n_;
};

// Chunks follow each other along the ring, from the root on.
void Pipeline(const Collective& c, int first, PlanBuilder* builder) {
  const int n = c.size();
  const int distance = (c.self - c.root + n) % n;
  // Hops: from distance d-1 to d. This rank is at the end of one and at the start of another.
  for (int hop = std::max(distance, 1); hop <= std::min(distance + 1, n - 1); ++hop) {
    const int from = (c.root + hop - 1) % n;
    const int to = (c.root + hop) % n;
    for (int chunk = 0; chunk < c.num_chunks; ++chunk) {
      const Part piece = EvenPart(c.count, c.num_chunks, c.align, chunk);
      builder->Add(first + hop - 1 + chunk, {.owner = c.rank(to),
                                             .count = piece.count,
                                             .sources = {hop == 1 ? c.Input(from, piece.offset)
                                                                  : c.Output(from, piece.offset)},
                                             .targets = {c.Output(to, piece.offset)}});
    }
  }
}

}  // namespace

int RingRounds(OpKind kind, int n, int num_chunks) {
  if (n == 1) return kFlatRounds;
  switch (kind) {
    case OpKind::kAllReduce:
      return 2 * (n - 1);
    case OpKind::kBroadcast:
      return n - 2 + num_chunks;
    default:
      return n - 1;
  }
}

void BuildRing(const Collective& c, PlanBuilder* builder) {
  const int n = c.size();
  if (n == 1) return BuildFlat(c, builder);
  const int first = builder->AddRounds(RingRounds(c.kind, n, c.num_chunks), c.link);
  if (c.self < 0) return;
  const bool cut = c.kind == OpKind::kAllReduce || c.kind == OpKind::kReduce;
  const Parts even = cut ? Parts::Even(c.count, n, c.align) : Parts();
  RingBuilder ring(c, cut ? even : c.parts, builder);
  switch (c.kind) {
    case OpKind::kAllReduce:
      ring.ReduceScatter(first, -1);
      return ring.AllGather(first + n - 1, /*from_output=*/true);
    case OpKind::kReduce:
      return ring.ReduceScatter(first, c.root);
    case OpKind::kReduceScatter:
      return ring.ReduceScatter(first, -1);
    case OpKind::kAllGather:
      return ring.AllGather(first, /*from_output=*/false);
    case OpKind::kBroadcast:
      return Pipeline(c, first, builder);
    default:
      CRIA_CHECK(false, "ring has no ", Name(c.kind));
  }
}

}  // namespace cria::comm

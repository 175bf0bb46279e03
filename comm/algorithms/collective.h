// What an algorithm is asked to build, and the plan under construction.
//
// A Collective is an operation among some ranks of the plan's group: all of them, or one lane of a
// hierarchical plan (the ranks that carry the same slice on each host), whose input is then a
// partial in kScratch. An algorithm adds rounds to a PlanBuilder; it sees one rank's view and adds
// the tasks in which that rank takes part, in the order of plan.h.
//
//   void BuildRing(const Collective& collective, PlanBuilder* builder);
//
// The number of rounds is the same for every view, also for a rank that is no member (self < 0):
// it may depend on `ranks.size()`, `kind`, `num_chunks` and `recursive_doubling` only.
// Thread-compatible: values.

#ifndef CRIA_COMM_ALGORITHMS_COLLECTIVE_H_
#define CRIA_COMM_ALGORITHMS_COLLECTIVE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/algorithms/parts.h"
#include "comm/plan/plan.h"

namespace cria::comm {

// Where the members' buffers of one role lie: element e of the whole is at offset + e of the slot.
// own: the buffer holds the member's own part alone, from `offset` on.
struct BufferPlace {
  Slot slot = Slot::kInput;
  int64_t offset = 0;
  bool own = false;
};

struct Collective {
  OpKind kind = OpKind::kAllReduce;
  std::vector<int> ranks = {};  // of the plan's group, by position
  int self = -1;                // position of the plan's rank; -1: no member
  int root = -1;                // position
  LinkKind link = LinkKind::kShm;
  int64_t count = 0;   // of the whole: all_reduce, reduce, broadcast
  int64_t align = 1;   // cuts are multiples of so many elements
  int num_chunks = 1;  // pipelined algorithms: pieces that follow each other
  // halving_doubling's all_reduce: exchanges whole vectors, for small counts.
  bool recursive_doubling = false;
  // all_gather, reduce_scatter, gather, scatter, all_to_all: each position's part of the whole.
  Parts parts = {};
  BufferPlace input = {};
  BufferPlace output = {.slot = Slot::kOutput};
  int64_t scratch_offset = 0;  // the algorithm's scratch starts here, on all members

  int size() const { return static_cast<int>(ranks.size()); }
  int rank(int position) const { return ranks[static_cast<size_t>(position)]; }
  // `offset` is of the whole, also where the buffer holds one part.
  Region Input(int position, int64_t offset) const { return At(input, position, offset); }
  Region Output(int position, int64_t offset) const { return At(output, position, offset); }
  Region Scratch(int position, int64_t offset) const {
    return {rank(position), Slot::kScratch, scratch_offset + offset};
  }

 private:
  Region At(const BufferPlace& place, int position, int64_t offset) const {
    const int64_t start = place.own ? parts.Start(position) : 0;
    return {rank(position), place.slot, place.offset + offset - start};
  }
};

inline bool SamePlace(const Region& a, const Region& b) {
  return a.rank == b.rank && a.slot == b.slot && a.offset == b.offset;
}

class PlanBuilder {
 public:
  // Adds to `plan`, whose rank is the view.
  explicit PlanBuilder(Plan* plan) : plan_(plan) {}

  int rank() const { return plan_->rank; }

  // Appends empty rounds and returns the index of the first.
  int AddRounds(int num_rounds, LinkKind link) {
    const auto first = plan_->rounds.size();
    plan_->rounds.resize(first + static_cast<size_t>(num_rounds), Round{.link = link, .tasks = {}});
    return static_cast<int>(first);
  }

  // Leaves out what is empty, and what this rank takes no part in.
  void Add(int round, Task task) {
    if (task.count == 0 || (task.sources.empty() && task.targets.empty())) return;
    if (task.owner != rank() && !Has(task.sources) && !Has(task.targets)) return;
    plan_->rounds[static_cast<size_t>(round)].tasks.push_back(std::move(task));
  }

  // This rank's scratch reaches to `elements` at least.
  void NeedScratch(int64_t elements) {
    if (elements > plan_->scratch_elements) plan_->scratch_elements = elements;
  }

 private:
  bool Has(const std::vector<Region>& regions) const {
    for (const Region& region : regions) {
      if (region.rank == rank()) return true;
    }
    return false;
  }

  Plan* const plan_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_COLLECTIVE_H_

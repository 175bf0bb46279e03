#include "comm/engine/transport.h"

#include "base/str.h"

namespace cria::comm {
namespace {

// What two signatures differ in first, in words.
std::string Difference(const Signature& self, const Signature& theirs) {
  if (self.group_id != theirs.group_id) {
    return "the groups differ: the ranks passed different lists or names";
  }
  if (self.sequence != theirs.sequence) {
    return StrCat("it is at operation #", theirs.sequence, " (", Name(theirs.kind), ")");
  }
  if (self.kind != theirs.kind) return StrCat("it called ", Name(theirs.kind));
  if (self.dtype != theirs.dtype) {
    return StrCat("it passed ", Name(theirs.dtype), ", this rank ", Name(self.dtype));
  }
  if (self.count != theirs.count) {
    return StrCat("it passed ", theirs.count, " elements of ", Name(theirs.dtype), ", this rank ",
                  self.count);
  }
  if (self.reduce_op != theirs.reduce_op) {
    return StrCat("it reduces by ", Name(theirs.reduce_op), ", this rank by ",
                  Name(self.reduce_op));
  }
  if (self.root != theirs.root) {
    return StrCat("its root is rank ", theirs.root, ", this rank's ", self.root);
  }
  if (self.algorithm != theirs.algorithm) {
    return StrCat("it chose the algorithm ", Name(theirs.algorithm), ", this rank ",
                  Name(self.algorithm), " (CRIA_COMM_ALGO or the topology differ)");
  }
  return "its plan differs: other counts of the ranks, CRIA_COMM settings or topology";
}

}  // namespace

bool Agree(const Signature& a, const Signature& b) {
  return a.group_id == b.group_id && a.sequence == b.sequence && a.plan_digest == b.plan_digest &&
         a.count == b.count && a.root == b.root && a.phase == b.phase && a.kind == b.kind &&
         a.dtype == b.dtype && a.reduce_op == b.reduce_op && a.algorithm == b.algorithm;
}

CommError MismatchError(const GroupInfo& group, const Signature& self, int other,
                        const Signature& theirs) {
  return {.kind = CommErrorKind::kMismatch,
          .group = group.name,
          .rank = group.rank,
          .world_rank = group.world_ranks[static_cast<size_t>(group.rank)],
          .culprit = other,
          .culprit_world = group.world_ranks[static_cast<size_t>(other)],
          .operation = Name(self.kind),
          .sequence = self.sequence,
          .bytes = self.input_bytes,
          .culprit_bytes = theirs.input_bytes,
          .reason = StrCat("rank ", other, " runs something else: ", Difference(self, theirs))};
}

int64_t SlotElementBytes(const Plan& plan, Slot slot) {
  const bool partial = slot == Slot::kScratch && Reduces(plan.kind);
  return ByteSize(partial ? AccumulateType(plan.dtype) : plan.dtype);
}

}  // namespace cria::comm

#include "comm/algorithms/flat.h"

#include <utility>
#include <vector>

#include "base/check.h"

namespace cria::comm {
namespace {

// Positions [begin, end) but one.
struct Positions {
  int begin = 0;
  int end = 0;
  int but = -1;

  bool Has(int position) const { return position >= begin && position < end && position != but; }
};

class FlatBuilder {
 public:
  FlatBuilder(const Collective& collective, PlanBuilder* builder)
      : c_(collective), builder_(builder), round_(builder->AddRounds(kFlatRounds, c_.link)) {}

  // The task of `owner`, as far as it concerns this rank.
  void Add(int owner, const Part& piece, const Positions& sources, const Positions& targets) {
    Task task{.owner = c_.rank(owner), .count = piece.count, .sources = {}, .targets = {}};
    const bool whole = c_.self == owner;
    const auto each = [&](const Positions& positions, auto&& add) {
      if (whole) {
        for (int i = positions.begin; i < positions.end; ++i) {
          if (positions.Has(i)) add(i);
        }
      } else if (positions.Has(c_.self)) {
        add(c_.self);
      }
    };
    each(sources, [&](int i) { task.sources.push_back(c_.Input(i, piece.offset)); });
    each(targets, [&](int i) {
      // Data that lies where it belongs stays (a lane's input may be the output already).
      const bool copied = sources.end - sources.begin == 1 && sources.Has(i);
      const Region target = c_.Output(i, piece.offset);
      if (!copied || !SamePlace(target, c_.Input(i, piece.offset))) task.targets.push_back(target);
    });
    if (whole && task.targets.empty()) return;
    builder_->Add(round_, std::move(task));
  }

 private:
  const Collective& c_;
  PlanBuilder* const builder_;
  const int round_;
};

// A whole that every rank helps with: slice k is owned by the k-th member, counted from the root.
void AddSlices(const Collective& c, const Positions& sources, const Positions& targets,
               FlatBuilder* flat) {
  const int n = c.size();
  for (int owner = 0; owner < n; ++owner) {
    const int slice = c.root < 0 ? owner : (owner - c.root + n) % n;
    flat->Add(owner, EvenPart(c.count, n, c.align, slice), sources, targets);
  }
}

void AddParts(const Collective& c, int owner, const Positions& sources, const Positions& targets,
              FlatBuilder* flat) {
  for (const Part& piece : c.parts.Of(owner)) flat->Add(owner, piece, sources, targets);
}

}  // namespace

void BuildFlat(const Collective& c, PlanBuilder* builder) {
  FlatBuilder flat(c, builder);
  if (c.self < 0) return;
  const int n = c.size();
  const Positions all{0, n};
  const Positions root{c.root, c.root + 1};
  const auto only = [](int position) { return Positions{position, position + 1}; };
  switch (c.kind) {
    case OpKind::kAllReduce:
      return AddSlices(c, all, all, &flat);
    case OpKind::kReduce:
      return AddSlices(c, all, root, &flat);
    case OpKind::kBroadcast:
      return AddSlices(c, root, {0, n, c.root}, &flat);
    case OpKind::kAllGather:
      for (int i = 0; i < n; ++i) AddParts(c, i, only(i), all, &flat);
      return;
    case OpKind::kReduceScatter:
      for (int i = 0; i < n; ++i) AddParts(c, i, all, only(i), &flat);
      return;
    default:
      CRIA_CHECK(false, "flat has no ", Name(c.kind));
  }
}

}  // namespace cria::comm

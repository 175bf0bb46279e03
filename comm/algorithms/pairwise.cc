#include "comm/algorithms/pairwise.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/plan/digest.h"

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

std::vector<int64_t> PlacesOf(std::span<const int64_t> counts,
                              std::span<const int64_t> displacements) {
  if (!displacements.empty()) return {displacements.begin(), displacements.end()};
  std::vector<int64_t> places;
  int64_t next = 0;
  for (const int64_t count : counts) {
    places.push_back(next);
    next += count;
  }
  return places;
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

Plan BuildAllToAllV(const AllToAllVRequest& request) {
  const int n = static_cast<int>(request.send_counts.size());
  Plan plan;
  plan.algorithm = Algorithm::kFlat;
  plan.kind = OpKind::kAllToAllV;
  plan.dtype = request.dtype;
  plan.rank = request.rank;
  plan.size = n;
  const auto hosts = request.host_of_rank;
  const int num_hosts = *std::max_element(hosts.begin(), hosts.end()) + 1;
  const bool split = num_hosts > 1 && num_hosts < n && !request.tcp_only;
  const bool shm = num_hosts == 1 && !request.tcp_only;
  const auto host_of = [&](int i) { return hosts[static_cast<size_t>(i)]; };
  PlanBuilder builder(&plan);
  const Rounds rounds(n, split ? Schedule::kHierarchical : Schedule::kFlat,
                      shm || split ? LinkKind::kShm : LinkKind::kTcp, host_of, &builder);
  const auto send_places = PlacesOf(request.send_counts, request.send_displacements);
  const auto recv_places = PlacesOf(request.recv_counts, request.recv_displacements);
  EachPair(request.rank, n, [&](int source, int target) {
    const auto s = static_cast<size_t>(source);
    const auto t = static_cast<size_t>(target);
    Task task{.owner = target, .count = 0, .sources = {}, .targets = {}};
    if (target == request.rank) {
      const bool own = source == request.rank;
      const int64_t from = own ? send_places[t] : request.source_displacements[s];
      task.count = request.recv_counts[s];
      task.sources = {{source, Slot::kInput, from}};
      task.targets = {{target, Slot::kOutput, recv_places[s]}};
    } else {
      task.count = request.send_counts[t];
      task.sources = {{source, Slot::kInput, send_places[t]}};
    }
    builder.Add(rounds.Of(source, target), std::move(task));
  });
  PlanDigest digest;
  digest.Add({static_cast<int64_t>(plan.kind), static_cast<int64_t>(plan.dtype), n, split,
              request.tcp_only});
  for (const int host : hosts) digest.Add({host});
  plan.digest = digest.value();
  return plan;
}

}  // namespace cria::comm

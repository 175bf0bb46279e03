#include "comm/algorithms/hierarchical.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/algorithms/simple.h"

namespace cria::comm {
namespace {

class HierarchicalBuilder {
 public:
  HierarchicalBuilder(const Collective& collective, const HostLayout& layout,
                      const HierarchicalShape& shape, PlanBuilder* builder)
      : c_(collective),
        layout_(layout),
        shape_(shape),
        builder_(builder),
        host_(layout.HostOf(c_.self)),
        lane_(layout.LaneOf(c_.self)),
        // Hosts of one rank have nothing to do inside.
        inside_(layout.num_lanes() > 1 || !layout.even()) {}

  void AllReduce() {
    const BufferPlace partial = ReduceInside();
    if (shape_.hosts_per_unit > 0) {
      AllReduceByTier(partial);
    } else {
      Collective lane = Lane(OpKind::kAllReduce);
      lane.input = partial;
      lane.output = Slice();
      BuildSimple(shape_.between, lane, builder_);
    }
    TakeSlices();
  }

  void Reduce() {
    const BufferPlace partial = ReduceInside();
    Collective lane = Lane(OpKind::kReduce);
    lane.input = partial;
    lane.root = layout_.HostOf(c_.root);
    lane.output = inside_ ? partial : c_.output;  // at the root's host a partial still
    BuildSimple(shape_.between, lane, builder_);
    if (!inside_) return;
    const int round = builder_->AddRounds(1, c_.link);
    if (host_ != lane.root) return;
    for (int j = 0; j < layout_.num_lanes(); ++j) {
      const int carrier = layout_.Carrier(host_, j);
      Add(round, carrier, SliceOf(j).count, {{carrier, Slot::kScratch, c_.scratch_offset}},
          {c_.Output(c_.root, SliceOf(j).offset)});
    }
  }

  void Broadcast() {
    const int root_host = layout_.HostOf(c_.root);
    if (inside_) {
      const int round = builder_->AddRounds(1, c_.link);
      for (int j = 0; host_ == root_host && j < layout_.num_lanes(); ++j) {
        TakeFromRoot(round, layout_.Carrier(host_, j), j);
      }
    }
    Collective lane = Lane(OpKind::kBroadcast);
    lane.root = root_host;
    lane.output = Slice();
    // Read at the root's host alone; the root itself has everything in its input.
    lane.input = layout_.Carrier(root_host, lane_) == c_.root ? SliceAt(c_.input) : Slice();
    BuildSimple(shape_.between, lane, builder_);
    if (host_ != root_host) return TakeSlices();
    if (!inside_) return;
    const int round = builder_->AddRounds(1, c_.link);
    for (const int rank : layout_.Members(host_)) {
      for (int j = 0; j < layout_.num_lanes(); ++j) {
        if (rank != layout_.Carrier(host_, j)) TakeFromRoot(round, rank, j);
      }
    }
  }

  void AllGather() {
    if (inside_) {
      const int round = builder_->AddRounds(1, c_.link);
      for (const int rank : layout_.Members(host_)) ShareInside(round, rank);
    }
    Collective lane = Lane(OpKind::kAllGather);
    lane.parts = LaneParts(lane_);
    if (inside_) {
      lane.input = c_.output;
    } else {
      lane.input = c_.input;
    }
    lane.output = c_.output;
    BuildSimple(shape_.between, lane, builder_);
    if (!inside_) return;
    const int round = builder_->AddRounds(1, c_.link);
    for (int j = 0; j < layout_.num_lanes(); ++j) {
      const int carrier = layout_.Carrier(host_, j);
      const Parts parts = LaneParts(j);
      std::vector<Part> remote = parts.Of(0, host_);
      parts.Append(host_ + 1, layout_.num_hosts(), &remote);
      for (const int rank : layout_.Members(host_)) {
        if (rank == carrier || (c_.self != rank && c_.self != carrier)) continue;
        for (const Part& piece : remote) {
          Add(round, rank, piece.count, {c_.Output(carrier, piece.offset)},
              {c_.Output(rank, piece.offset)});
        }
      }
    }
  }

  void ReduceScatter() {
    if (!inside_) {
      Collective lane = Lane(OpKind::kReduceScatter);
      lane.parts = LaneParts(0);
      lane.input = c_.input;
      lane.output = c_.output;
      return BuildSimple(shape_.between, lane, builder_);
    }
    // A lane's scratch: the parts of its ranks, host by host.
    const int round = builder_->AddRounds(1, c_.link);
    std::vector<int64_t> ends(static_cast<size_t>(layout_.num_lanes()), 0);
    std::vector<Part> lane_parts;        // of this rank's lane, by host
    std::vector<int64_t> at_in_scratch;  // of the ranks of this host, in order
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      Part mine{ends[static_cast<size_t>(lane_)], 0};
      for (const int rank : layout_.Members(host)) {
        int64_t& end = ends[static_cast<size_t>(layout_.LaneOf(rank))];
        if (host == host_) at_in_scratch.push_back(end);
        SumInside(round, rank, end);
        end += c_.parts.Count(rank);
        if (layout_.LaneOf(rank) == lane_) mine.count += c_.parts.Count(rank);
      }
      lane_parts.push_back(mine);
    }
    const int64_t scratch = *std::max_element(ends.begin(), ends.end());
    if (layout_.IsCarrier(c_.self)) builder_->NeedScratch(c_.scratch_offset + scratch);
    Collective lane = Lane(OpKind::kReduceScatter);
    lane.parts = Parts::List(std::move(lane_parts));
    lane.input = {.slot = Slot::kScratch, .offset = c_.scratch_offset};
    lane.scratch_offset = c_.scratch_offset + scratch;
    // Where a lane has one rank a host, its result goes where it belongs.
    const bool direct = layout_.even();
    lane.output = direct
                      ? BufferPlace{.slot = c_.output.slot, .offset = c_.output.offset, .own = true}
                      : lane.input;
    BuildSimple(shape_.between, lane, builder_);
    if (direct) return;
    const int last = builder_->AddRounds(1, c_.link);
    for (const int rank : layout_.Members(host_)) {
      const int64_t at = at_in_scratch[static_cast<size_t>(layout_.IndexOf(rank))];
      Add(last, rank, c_.parts.Count(rank),
          {{layout_.CarrierOf(rank), Slot::kScratch, c_.scratch_offset + at}},
          {c_.Output(rank, c_.parts.Start(rank))});
    }
  }

 private:
  // all_reduce, reduce, broadcast: lane j carries a slice of the whole.
  Part SliceOf(int lane) const { return EvenPart(c_.count, layout_.num_lanes(), c_.align, lane); }
  BufferPlace SliceAt(const BufferPlace& place) const {
    return {.slot = place.slot, .offset = place.offset + SliceOf(lane_).offset};
  }
  BufferPlace Slice() const { return SliceAt(c_.output); }
  int64_t SliceMax() const { return SliceOf(0).count; }

  // This rank's lane, one position a host; no member when this rank does not carry.
  Collective Lane(OpKind kind) const {
    Collective lane;
    lane.kind = kind;
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      lane.ranks.push_back(layout_.Carrier(host, lane_));
    }
    lane.self = layout_.IsCarrier(c_.self) ? host_ : -1;
    lane.link = LinkKind::kTcp;
    lane.count = SliceOf(lane_).count;
    lane.align = c_.align;
    lane.num_chunks = shape_.num_chunks;
    lane.recursive_doubling = shape_.recursive_doubling;
    lane.scratch_offset = c_.scratch_offset + (inside_ ? SliceMax() : 0);
    return lane;
  }

  void Add(int round, int owner, int64_t count, std::vector<Region> sources,
           std::vector<Region> targets) {
    builder_->Add(round, {.owner = owner,
                          .count = count,
                          .sources = std::move(sources),
                          .targets = std::move(targets)});
  }

  // Step 1 of the reductions: the host's sum of each slice to its carrier's scratch; all of the
  // host's ranks do a share. Returns where a carrier's slice is then: of its input when there is
  // nothing to add up.
  BufferPlace ReduceInside() {
    if (!inside_) return SliceAt(c_.input);
    const int round = builder_->AddRounds(1, c_.link);
    if (layout_.IsCarrier(c_.self)) builder_->NeedScratch(c_.scratch_offset + SliceMax());
    const auto& members = layout_.Members(host_);
    const int num_shares = static_cast<int>(members.size());
    for (int k = 0; k < num_shares; ++k) {
      const Part share = EvenPart(c_.count, num_shares, c_.align, k);
      for (int j = 0; j < layout_.num_lanes(); ++j) {
        const Part slice = SliceOf(j);
        const int64_t begin = std::max(share.offset, slice.offset);
        const int64_t end = std::min(share.offset + share.count, slice.offset + slice.count);
        if (begin >= end) continue;
        std::vector<Region> sources;
        for (const int rank : members) sources.push_back(c_.Input(rank, begin));
        Add(round, members[static_cast<size_t>(k)], end - begin, std::move(sources),
            {{layout_.Carrier(host_, j), Slot::kScratch,
              c_.scratch_offset + begin - slice.offset}});
      }
    }
    return {.slot = Slot::kScratch, .offset = c_.scratch_offset};
  }

  // The last step: the finished slices from their carriers to the others.
  void TakeSlices() {
    if (!inside_) return;
    const int round = builder_->AddRounds(1, c_.link);
    for (const int rank : layout_.Members(host_)) {
      for (int j = 0; j < layout_.num_lanes(); ++j) {
        const int carrier = layout_.Carrier(host_, j);
        if (rank == carrier || (c_.self != rank && c_.self != carrier)) continue;
        const Part slice = SliceOf(j);
        Add(round, rank, slice.count, {c_.Output(carrier, slice.offset)},
            {c_.Output(rank, slice.offset)});
      }
    }
  }

  void TakeFromRoot(int round, int rank, int lane) {
    if (rank == c_.root) return;
    const Part slice = SliceOf(lane);
    Add(round, rank, slice.count, {c_.Input(c_.root, slice.offset)},
        {c_.Output(rank, slice.offset)});
  }

  // all_reduce of a lane in three parts: inside the unit, across units, inside the unit.
  void AllReduceByTier(const BufferPlace& partial) {
    Collective whole = Lane(OpKind::kAllReduce);
    const int hosts_per_unit = shape_.hosts_per_unit;
    const int unit = host_ / hosts_per_unit;
    const int num_units = layout_.num_hosts() / hosts_per_unit;
    CRIA_CHECK_EQ(num_units * hosts_per_unit, layout_.num_hosts());

    Collective inside = whole;
    inside.kind = OpKind::kReduceScatter;
    inside.ranks.clear();
    for (int i = 0; i < hosts_per_unit; ++i) {
      inside.ranks.push_back(layout_.Carrier(unit * hosts_per_unit + i, lane_));
    }
    inside.self = whole.self < 0 ? -1 : host_ % hosts_per_unit;
    inside.parts = Parts::Even(whole.count, hosts_per_unit, whole.align);
    inside.input = partial;
    // Unfinished: to scratch, over the slice that lies there or beside the input.
    inside.output = {.slot = Slot::kScratch, .offset = c_.scratch_offset};
    inside.scratch_offset = c_.scratch_offset + SliceMax();
    if (whole.self >= 0) builder_->NeedScratch(inside.scratch_offset);
    BuildSimple(shape_.between, inside, builder_);

    const int place = host_ % hosts_per_unit;
    const Part piece = EvenPart(whole.count, hosts_per_unit, whole.align, place);
    Collective across = whole;
    across.ranks.clear();
    for (int u = 0; u < num_units; ++u) {
      across.ranks.push_back(layout_.Carrier(u * hosts_per_unit + place, lane_));
    }
    across.self = whole.self < 0 ? -1 : unit;
    across.count = piece.count;
    across.input = {.slot = Slot::kScratch, .offset = c_.scratch_offset + piece.offset};
    across.output = {.slot = c_.output.slot, .offset = Slice().offset + piece.offset};
    across.scratch_offset = inside.scratch_offset;
    BuildSimple(shape_.across, across, builder_);

    inside.kind = OpKind::kAllGather;
    inside.input = Slice();
    inside.output = Slice();
    BuildSimple(shape_.between, inside, builder_);
  }

  // all_gather: each host's parts of a lane, which need not lie together.
  Parts LaneParts(int lane) const {
    std::vector<Part> pieces;
    std::vector<int> first = {0};
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      std::vector<Part> own;
      for (const int rank : layout_.Members(host)) {
        if (layout_.LaneOf(rank) == lane) c_.parts.Append(rank, rank + 1, &own);
      }
      pieces.insert(pieces.end(), own.begin(), own.end());
      first.push_back(static_cast<int>(pieces.size()));
    }
    return Parts::Lists(std::move(pieces), std::move(first));
  }

  // all_gather, step 1: this host's parts to all of its ranks, each by the rank that has it.
  void ShareInside(int round, int rank) {
    for (const Part& piece : c_.parts.Of(rank)) {
      std::vector<Region> targets;
      for (const int target : layout_.Members(host_)) {
        targets.push_back(c_.Output(target, piece.offset));
      }
      Add(round, rank, piece.count, {c_.Input(rank, piece.offset)}, std::move(targets));
    }
  }

  // reduce_scatter, step 1: the host's sum of one rank's part to its lane's carrier.
  void SumInside(int round, int rank, int64_t at) {
    const auto& members = layout_.Members(host_);
    const int lane = layout_.LaneOf(rank);
    // The host's ranks of this lane take turns.
    const int num_helpers =
        (static_cast<int>(members.size()) - lane + layout_.num_lanes() - 1) / layout_.num_lanes();
    const int helper = lane + layout_.num_lanes() * (rank % num_helpers);
    for (const Part& piece : c_.parts.Of(rank)) {
      std::vector<Region> sources;
      for (const int source : members) sources.push_back(c_.Input(source, piece.offset));
      Add(round, members[static_cast<size_t>(helper)], piece.count, std::move(sources),
          {{layout_.Carrier(host_, lane), Slot::kScratch, c_.scratch_offset + at}});
    }
  }

  const Collective& c_;
  const HostLayout& layout_;
  const HierarchicalShape& shape_;
  PlanBuilder* const builder_;
  const int host_;
  const int lane_;
  const bool inside_;
};

}  // namespace

void BuildHierarchical(const Collective& collective, const HostLayout& layout,
                       const HierarchicalShape& shape, PlanBuilder* builder) {
  CRIA_CHECK_GT(layout.num_hosts(), 1);
  HierarchicalBuilder hierarchical(collective, layout, shape, builder);
  switch (collective.kind) {
    case OpKind::kAllReduce:
      return hierarchical.AllReduce();
    case OpKind::kReduce:
      return hierarchical.Reduce();
    case OpKind::kBroadcast:
      return hierarchical.Broadcast();
    case OpKind::kAllGather:
      return hierarchical.AllGather();
    case OpKind::kReduceScatter:
      return hierarchical.ReduceScatter();
    default:
      CRIA_CHECK(false, "hierarchical has no ", Name(collective.kind));
  }
}

}  // namespace cria::comm

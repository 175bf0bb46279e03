#include "comm/plan/simple_cost.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <set>

#include "base/check.h"
#include "comm/algorithms/double_tree.h"
#include "comm/algorithms/halving_doubling.h"
#include "comm/algorithms/parts.h"
#include "comm/algorithms/ring.h"

namespace cria::comm {
namespace {

class Pricer {
 public:
  Pricer(const SimpleOperation& operation, const GroupShape& group, const GroupTopology& topology,
         PlanCost* cost)
      : o_(operation), group_(group), topology_(topology), cost_(cost), n_(operation.num_members) {
    raw_ = o_.partial_input ? o_.partial_bytes : o_.element_bytes;
  }

  void Flat();
  void Ring(int num_chunks);
  void Halving(bool recursive_doubling);
  void Tree(int num_chunks);
  void Transfers(bool pairwise);

 private:
  double n() const { return n_; }
  double Even(int parts, int64_t count) const {
    return static_cast<double>(EvenPart(count, parts, o_.align, 0).count);
  }
  double Even(int parts) const { return Even(parts, o_.count); }
  // Of so many even parts of `count` elements, those that are not empty; 1 at least.
  int NumFilled(int parts, int64_t count) const {
    const int64_t units = count / o_.align + (count % o_.align != 0 ? 1 : 0);
    return static_cast<int>(std::clamp<int64_t>(units, 1, parts));
  }

  // Adds `repeat` rounds. leaving(block): the bytes that leave or enter a block of so many members,
  // at the block where it is most.
  template <typename Leaving>
  void Add(RoundLoad load, double repeat, const Leaving& leaving) {
    if (repeat <= 0) return;
    load.link = o_.link;
    if (load.bytes_sent == 0) load.bytes_sent = load.rank_bytes;
    if (o_.link == LinkKind::kTcp) {
      if (o_.members_per_host < n_) load.host_bytes = o_.lanes * leaving(o_.members_per_host);
      for (const int hosts : group_.hosts_per_unit) {
        const double block = static_cast<double>(hosts) * o_.members_per_host;
        const double bytes = block < n_ ? o_.lanes * leaving(static_cast<int>(block)) : 0;
        load.unit_us.push_back(bytes * 1e-3 / (topology_.HostGigabytesPerS() * hosts));
      }
    }
    AddRounds(load, repeat, topology_, group_.cpu_factor, cost_);
    cost_->rounds += static_cast<int>(repeat);
  }

  // A block's members whose partner at distance 2^k, by exclusive or, lies outside.
  static double Crossing(int distance, int block) {
    if (distance >= block) return block;
    const int rest = block % (2 * distance);
    return std::min(rest, 2 * distance - rest);
  }

  void HalveWhole();
  void DoubleWhole();

  const SimpleOperation& o_;
  const GroupShape& group_;
  const GroupTopology& topology_;
  PlanCost* const cost_;
  const int n_;
  double raw_ = 0;  // bytes of an element of the input
};

void Pricer::Flat() {
  const bool whole = o_.kind != OpKind::kAllGather && o_.kind != OpKind::kReduceScatter;
  // Owners; each has a slice (or a part).
  const int owners = whole ? NumFilled(n_, o_.count) : n_;
  const double k = owners;
  const double e = whole ? Even(n_) : static_cast<double>(o_.count);
  const double in = e * raw_;
  const double out = e * (o_.partial_output ? o_.partial_bytes : o_.element_bytes);
  RoundLoad load;
  if (n_ == 1) {
    load.touched_bytes = o_.kind == OpKind::kBroadcast ? 0 : in + out;
    return Add(load, 1, [](int) { return 0.0; });
  }
  const double others = n() - 1;
  load.hops = 1;
  double each = 0;  // bytes from a member to each other member
  switch (o_.kind) {
    case OpKind::kAllReduce:
      load.hops = 2;
      load.messages = others + k - 1;
      load.rank_bytes = others * std::max(in, out) + (k - 1) * std::min(in, out);
      load.bytes_sent = others * out + (k - 1) * in;
      load.touched_bytes = n() * (in + out);
      load.reduced_bytes = others * e * o_.element_bytes;
      each = in + out;
      break;
    case OpKind::kReduce:
      load.hops = k > 1 ? 2 : 1;
      load.messages = others + k - 1;
      load.rank_bytes = others * in + (k - 1) * out;
      load.bytes_sent = k > 1 ? (k - 1) * in + out : in;
      load.touched_bytes = n() * in + out;
      load.reduced_bytes = others * e * o_.element_bytes;
      each = in;
      break;
    case OpKind::kBroadcast:
      load.hops = k > 1 ? 2 : 1;
      load.messages = others + k - 1;
      load.rank_bytes = (others + k - 1) * out;
      load.touched_bytes = n() * out;
      each = out;
      break;
    case OpKind::kAllGather:
      load.messages = others;
      load.rank_bytes = others * out;
      load.touched_bytes = in + n() * out;
      each = out;
      break;
    default:
      load.messages = others;
      load.rank_bytes = others * in;
      load.touched_bytes = n() * in + out;
      load.reduced_bytes = others * e * o_.element_bytes;
      each = in;
      break;
  }
  Add(load, 1, [&](int block) {
    // Owners inside a block deal with all members outside, its members with the owners outside.
    const double b = block, inside = std::min(b, k);
    if (!whole) return b * (n() - b) * each;
    if (o_.kind == OpKind::kAllReduce) {
      return (inside * (n() - b) + b * (k - inside)) * each / 2;
    }
    // At the root's block: what its owners take from (or give to) all, and the other owners'
    // slices.
    return (inside * (n() - b) + (k - inside)) * each;
  });
}

void Pricer::Ring(int num_chunks) {
  if (n_ == 1) return Flat();
  const bool whole = o_.kind == OpKind::kAllReduce || o_.kind == OpKind::kReduce;
  const double e = whole ? Even(n_) : static_cast<double>(o_.count);
  const auto edge = [](double bytes) { return [bytes](int) { return bytes; }; };
  if (o_.kind == OpKind::kBroadcast) {
    const double chunk = Even(num_chunks) * o_.element_bytes;
    const RoundLoad load{.hops = 1, .messages = 1, .rank_bytes = chunk, .touched_bytes = 2 * chunk};
    const int filled = NumFilled(num_chunks, o_.count);
    cost_->rounds += num_chunks - filled;  // rounds without work
    return Add(load, RingRounds(o_.kind, n_, filled), edge(chunk));
  }
  if (o_.kind != OpKind::kAllGather) {
    const double moved = e * o_.partial_bytes;
    const double added = e * o_.element_bytes;
    RoundLoad load{.hops = 1,
                   .messages = 1,
                   .rank_bytes = e * raw_,
                   .touched_bytes = 2 * e * raw_ + moved,
                   .reduced_bytes = added};
    const bool gathers = o_.kind == OpKind::kReduce;  // in the last round, at the root
    const double out = e * (o_.partial_output ? o_.partial_bytes : o_.element_bytes);
    if (n_ > 2) Add(load, 1, edge(e * raw_));
    load.touched_bytes = load.rank_bytes + e * raw_ + out;
    if (n_ > 2) {
      load.rank_bytes = moved;
      load.touched_bytes = 2 * moved + e * raw_;
      Add(load, n_ - 3, edge(moved));
      load.touched_bytes = moved + e * raw_ + out;
    }
    if (!gathers) Add(load, 1, edge(load.rank_bytes));
    if (gathers) {
      const double in = load.rank_bytes;
      const double others = std::min<double>(NumFilled(n_, o_.count), n() - 1);
      load.hops = others > 1 ? 2 : 1;
      load.messages = others > 1 ? others + 1 : 1;
      load.bytes_sent = others > 1 ? in + out : in;
      load.rank_bytes = in + (others > 1 ? others * out : 0);
      Add(load, 1, [&](int block) { return std::min(others, n() - block) * out + in; });
    }
  }
  if (o_.kind == OpKind::kAllReduce || o_.kind == OpKind::kAllGather) {
    const double moved = e * o_.element_bytes;
    RoundLoad load{.hops = 1, .messages = 1, .rank_bytes = moved, .touched_bytes = 3 * moved};
    // The first round of an all_gather fills the sender's own place as well.
    const int first = o_.kind == OpKind::kAllGather ? 1 : 0;
    Add(load, first, edge(moved));
    load.touched_bytes = 2 * moved;
    Add(load, n_ - 1 - first, edge(moved));
  }
}

// What the first half of an all_reduce does: log2(n) exchanges, halving.
void Pricer::HalveWhole() {
  const int steps = std::bit_width(static_cast<unsigned>(n_)) - 1;
  const int groups = 1 << steps;
  const bool pairs = n_ > groups;
  const bool gathers = o_.kind == OpKind::kReduce;
  const double finished = o_.partial_output ? o_.partial_bytes : o_.element_bytes;
  for (int step = 0; step < steps; ++step) {
    const int parts = groups >> (step + 1);
    const Part last = EvenPart(o_.count, groups, o_.align, parts - 1);
    const auto e = static_cast<double>(last.offset + last.count);
    const double moved = e * (step == 0 ? raw_ : o_.partial_bytes);
    const double sources = step == 0 && pairs ? 4 : 2;
    RoundLoad load{
        .hops = 1,
        .messages = sources - 1,
        .rank_bytes = (sources - 1) * moved,
        .touched_bytes = sources * moved + e * (step == steps - 1 ? finished : o_.partial_bytes),
        .reduced_bytes = (sources - 1) * e * o_.element_bytes};
    load.bytes_sent = sources == 4 ? 2 * moved : moved;
    const double distance = 1 << step;
    const double twice = sources == 4 ? 2 : 1;
    if (gathers && step == steps - 1) {
      const double out = e * finished;
      const double others = NumFilled(groups, o_.count) - 1;
      if (others > 0) {
        load.hops = 2;
        load.bytes_sent += out;
      }
      load.messages += others;
      load.rank_bytes += others * out;
      const double everyone = others * out;
      Add(load, 1, [&](int block) {
        return Crossing(static_cast<int>(distance), block) * moved + everyone;
      });
    } else {
      Add(load, 1,
          [&](int block) { return twice * Crossing(static_cast<int>(distance), block) * moved; });
    }
  }
}

void Pricer::DoubleWhole() {
  const int steps = std::bit_width(static_cast<unsigned>(n_)) - 1;
  const int groups = 1 << steps;
  for (int step = steps - 1; step >= 0; --step) {
    const Part last = EvenPart(o_.count, groups, o_.align, (groups >> (step + 1)) - 1);
    const double moved = static_cast<double>(last.offset + last.count) * o_.element_bytes;
    // The second of a pair takes everything in the last step.
    const bool pairs = step == 0 && n_ > groups;
    const RoundLoad load{.hops = 1,
                         .messages = pairs ? 3.0 : 1.0,
                         .bytes_sent = pairs ? 3 * moved : moved,
                         .rank_bytes = pairs ? 3 * moved : moved,
                         .touched_bytes = pairs ? 4 * moved : 2 * moved};
    Add(load, 1, [&](int block) { return (pairs ? 2 : 1) * Crossing(1 << step, block) * moved; });
  }
}

void Pricer::Halving(bool recursive_doubling) {
  if (n_ == 1 || (o_.kind == OpKind::kAllGather && n_ < 4)) return Flat();
  const int steps = std::bit_width(static_cast<unsigned>(n_)) - 1;
  const int groups = 1 << steps;
  const bool pairs = n_ > groups;
  const auto count = static_cast<double>(o_.count);
  switch (o_.kind) {
    case OpKind::kAllReduce:
      break;
    case OpKind::kReduce:
      return HalveWhole();
    case OpKind::kBroadcast: {
      const double part = Even(groups) * o_.element_bytes;
      const double others = std::max(1, NumFilled(groups, o_.count) - 1);
      const RoundLoad load{
          .hops = 1, .messages = others, .rank_bytes = others * part, .touched_bytes = 2 * part};
      Add(load, 1, [&](int block) { return std::min<double>(others, n_ - block) * part; });
      return DoubleWhole();
    }
    default: {
      // reduce_scatter from the farthest, all_gather from the nearest partner.
      const bool scatters = o_.kind == OpKind::kReduceScatter;
      for (int step = 0; step < steps; ++step) {
        const int distance = scatters ? groups >> (step + 1) : 1 << step;
        // A range of `distance` groups, the first of which are pairs.
        const double held = count * (distance + std::min(distance, n_ - groups));
        const double in = held * (scatters && step > 0 ? o_.partial_bytes : raw_);
        const double sources = scatters && step == 0 && pairs ? 4 : 2;
        const bool last = step == steps - 1;
        RoundLoad load{.hops = 1, .messages = 1, .rank_bytes = in};
        if (scatters) {
          load.messages = (sources - 1) * (last && pairs ? 2 : 1);
          load.rank_bytes = (sources - 1) * in;
          load.bytes_sent = sources == 4 ? 2 * in : in;
          load.touched_bytes = sources * in + held * o_.partial_bytes;
          load.reduced_bytes = (sources - 1) * held * o_.element_bytes;
          if (last && pairs) load.hops = 2;
        } else {
          load.messages = pairs && (step == 0 || last) ? 3 : 1;
          if (pairs && last) load.rank_bytes = 3 * in;
          load.touched_bytes = (last && pairs ? 4 : step == 0 ? 3 : 2) * in;
        }
        const double twice = scatters ? sources / 2 : pairs && last ? 2 : 1;
        Add(load, 1, [&](int block) { return Crossing(distance, block) * in * twice; });
      }
      return;
    }
  }
  if (!recursive_doubling) {
    HalveWhole();
    return DoubleWhole();
  }
  for (int step = 0; step < steps; ++step) {
    const double moved = count * (step == 0 ? raw_ : o_.partial_bytes);
    const double sources = step == 0 && pairs ? 4 : 2;
    const bool last = step == steps - 1;
    RoundLoad load{
        .hops = 1,
        .messages = sources - 1,
        .rank_bytes = (sources - 1) * moved,
        .touched_bytes = sources * moved + count * (last ? o_.element_bytes : o_.partial_bytes),
        .reduced_bytes = (sources - 1) * count * o_.element_bytes};
    load.bytes_sent = sources == 4 ? 2 * moved : moved;
    if (last && pairs) {
      load.hops = 2;
      load.messages = 2;
      load.bytes_sent = moved + count * o_.element_bytes;
      load.rank_bytes = load.bytes_sent;
    }
    Add(load, 1, [&](int block) { return Crossing(1 << step, block) * moved * (sources / 2); });
  }
}

void Pricer::Tree(int num_chunks) {
  if (n_ == 1) return Flat();
  const bool rooted = o_.kind != OpKind::kAllReduce;
  const int depth = rooted ? TreeDepth(n_ - 1) + 1 : TreeDepth(n_);
  const int64_t half = EvenPart(o_.count, 2, o_.align, 0).count;
  const double trees = NumFilled(2, o_.count);
  const int chunks = NumFilled(num_chunks, half);
  cost_->rounds += num_chunks - chunks;  // rounds without work
  const double e = Even(num_chunks, half);
  const double up = e * (depth > 1 ? o_.partial_bytes : raw_);
  const double down = e * o_.element_bytes;
  // Edges that leave a block are few, for blocks are intervals of the trees: about one in each
  // direction for each tree and each end of the block.
  const double active = n_ == 2 ? (rooted ? trees : 1) : chunks > 1 ? trees : (trees + 1) / 3;
  const auto edges = [this, active](double bytes) {
    return [this, active, bytes](int block) {
      const double ends = 2 * block >= n_ ? 1 : 2;
      return std::min<double>(block * 2, active * ends) * bytes;
    };
  };
  const double children = n_ > 2 ? 2 : 1;
  RoundLoad adds{.hops = 1,
                 .messages = children,
                 .bytes_sent = chunks > 1 ? trees * up : up,
                 .rank_bytes = children * up,
                 .touched_bytes = (children + 1) * up + e * raw_,
                 .reduced_bytes = children * e * o_.element_bytes};
  const RoundLoad copies{.hops = 1,
                         .messages = std::min(children, trees * (n_ - 1)),
                         .rank_bytes = std::min(children, trees * (n_ - 1)) * down,
                         .touched_bytes = (chunks > 1 ? 2 * trees : 2) * down};
  if (o_.kind == OpKind::kReduce) {
    // The root adds one chunk of each tree to its own.
    adds.touched_bytes = std::max(adds.touched_bytes, trees * (up + e * raw_ + down));
    return Add(adds, chunks + depth - 1, edges(up));
  }
  if (o_.kind == OpKind::kBroadcast) return Add(copies, chunks + depth - 1, edges(down));
  RoundLoad all = adds;  // while chunks go up and others come down
  all.messages += copies.messages;
  all.bytes_sent += copies.rank_bytes;
  all.rank_bytes += copies.rank_bytes;
  all.touched_bytes += copies.touched_bytes;
  Add(adds, depth, edges(up));
  Add(all, chunks - 1, edges(up + down));
  Add(copies, depth, edges(down));
}

void Pricer::Transfers(bool pairwise) {
  const double part = static_cast<double>(o_.count) * o_.element_bytes;
  const double others = n() - 1;
  const bool all_to_all = o_.kind == OpKind::kAllToAll;
  RoundLoad load{.hops = n_ > 1 ? 1.0 : 0.0, .messages = others, .rank_bytes = others * part};
  load.bytes_sent = o_.kind == OpKind::kGather ? part : others * part;
  // Over shared memory the targets (of a gather the sources) do the work, each its share.
  load.touched_bytes = 2 * part * (all_to_all ? n() : 1);
  const auto leaving = [&](int block) { return (all_to_all ? block : 1) * (n() - block) * part; };
  if (!pairwise || n_ <= 2) return Add(load, 1, leaving);
  // n-1 rounds; those to partners near and far are taken as one average.
  load.messages = 1;
  load.rank_bytes = part;
  load.bytes_sent = part;
  load.touched_bytes = (all_to_all ? 4 : 2) * part;  // its own part as well
  const auto average = [&](int block) { return leaving(block) / others; };
  Add(load, 1, average);
  load.touched_bytes = 2 * part;
  Add(load, others - 1, average);
}

}  // namespace

GroupShape ShapeOf(const GroupTopology& topology) {
  GroupShape shape;
  shape.num_ranks = topology.size();
  shape.num_hosts =
      *std::max_element(topology.host_of_rank.begin(), topology.host_of_rank.end()) + 1;
  std::vector<int> ranks(static_cast<size_t>(shape.num_hosts), 0);
  for (const int host : topology.host_of_rank) ++ranks[static_cast<size_t>(host)];
  shape.ranks_per_host_max = *std::max_element(ranks.begin(), ranks.end());
  shape.lanes = *std::min_element(ranks.begin(), ranks.end());
  for (const auto& units : topology.tier_of_host) {
    std::map<int, int> hosts;
    for (const int unit : units) ++hosts[unit];
    int most = 0;
    for (const auto& [unit, num_hosts] : hosts) most = std::max(most, num_hosts);
    shape.hosts_per_unit.push_back(most);
    const int least =
        std::min_element(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->second;
    shape.even_units.push_back(least == most && hosts.size() > 1);
  }
  shape.cpu_factor = CpuFactor(topology, shape.ranks_per_host_max);
  return shape;
}

void AddSimpleCost(Algorithm algorithm, const SimpleOperation& operation, int num_chunks,
                   bool recursive_doubling, const GroupShape& group, const GroupTopology& topology,
                   PlanCost* cost) {
  Pricer pricer(operation, group, topology, cost);
  switch (algorithm) {
    case Algorithm::kFlat:
      return pricer.Flat();
    case Algorithm::kRing:
      return pricer.Ring(num_chunks);
    case Algorithm::kHalvingDoubling:
      return pricer.Halving(recursive_doubling);
    case Algorithm::kDoubleTree:
      return pricer.Tree(num_chunks);
    default:
      CRIA_CHECK(false, Name(algorithm), " is not simple");
  }
}

void AddTransferCost(const SimpleOperation& operation, bool pairwise, const GroupShape& group,
                     const GroupTopology& topology, PlanCost* cost) {
  Pricer(operation, group, topology, cost).Transfers(pairwise);
}

}  // namespace cria::comm

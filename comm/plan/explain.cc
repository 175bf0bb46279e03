#include "comm/plan/explain.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "base/json.h"
#include "base/str.h"
#include "comm/plan/cost.h"

namespace cria::comm {
namespace {

// Transfers between pairs have no parameters.
std::string ShapeText(const Candidate& candidate, OpKind kind) {
  return MovesPairs(kind) ? Name(candidate.shape.algorithm) : Describe(candidate.shape);
}

std::string Microseconds(double us) { return StrFormat(us < 1000 ? "%.2f" : "%.0f", us); }

double BytesOf(const Plan& plan, const Task& task, const Region& region) {
  const bool partial = region.slot == Slot::kScratch && Reduces(plan.kind);
  return static_cast<double>(task.count) *
         static_cast<double>(ByteSize(partial ? AccumulateType(plan.dtype) : plan.dtype));
}

// "1, 2, 3", or the first few and how many.
std::string Ranks(const std::set<int>& ranks) {
  constexpr size_t kShown = 4;
  std::string text;
  size_t i = 0;
  for (const int rank : ranks) {
    if (i == kShown) return StrCat(text, " .. ", *ranks.rbegin(), " (", ranks.size(), ")");
    text += StrCat(i++ == 0 ? "" : " ", rank);
  }
  return text;
}

// What a rank does in a round.
struct RoundText {
  std::string pattern;  // without the peers
  std::string peers;
};

RoundText TextOfRound(const Plan& plan, const Round& round) {
  double in = 0, out = 0, reduced = 0, copied = 0;
  std::set<int> from, to;
  for (const Task& task : round.tasks) {
    const bool own = task.owner == plan.rank;
    for (const Region& source : task.sources) {
      const double bytes = BytesOf(plan, task, source);
      if (own && source.rank != plan.rank) {
        in += bytes;
        from.insert(source.rank);
      } else if (!own && source.rank == plan.rank) {
        out += bytes;
        to.insert(task.owner);
      }
    }
    for (const Region& target : task.targets) {
      const double bytes = BytesOf(plan, task, target);
      if (own && target.rank != plan.rank) {
        out += bytes;
        to.insert(target.rank);
      } else if (!own && target.rank == plan.rank) {
        in += bytes;
        from.insert(task.owner);
      } else if (own && task.sources.size() == 1 && task.sources[0].rank == plan.rank) {
        copied += bytes;
      }
    }
    if (own && task.sources.size() > 1) reduced += BytesOf(plan, task, task.sources[0]);
  }
  RoundText text;
  text.pattern = round.link == LinkKind::kShm ? "shm" : "tcp";
  if (in > 0) text.pattern += StrCat("  in ", HumanBytes(in));
  if (out > 0) text.pattern += StrCat("  out ", HumanBytes(out));
  if (reduced > 0) text.pattern += StrCat("  reduces ", HumanBytes(reduced));
  if (copied > 0) text.pattern += StrCat("  copies ", HumanBytes(copied));
  if (round.tasks.empty()) text.pattern += "  nothing";
  if (!from.empty()) text.peers += StrCat("  from ", Ranks(from));
  if (!to.empty()) text.peers += StrCat("  to ", Ranks(to));
  return text;
}

std::string RoundsText(const Plan& plan, int max_lines) {
  std::string text;
  int lines = 0;
  for (size_t i = 0; i < plan.rounds.size();) {
    const RoundText first = TextOfRound(plan, plan.rounds[i]);
    size_t end = i + 1;
    bool same_peers = true;
    for (; end < plan.rounds.size(); ++end) {
      const RoundText next = TextOfRound(plan, plan.rounds[end]);
      if (next.pattern != first.pattern) break;
      same_peers &= next.peers == first.peers;
    }
    if (++lines > max_lines) return StrCat(text, "  ...\n");
    text += StrFormat("  %-9s %s%s\n", (end == i + 1 ? StrCat(i) : StrCat(i, "-", end - 1)).c_str(),
                      first.pattern.c_str(),
                      same_peers ? first.peers.c_str() : "  from and to others each");
    i = end;
  }
  return text;
}

}  // namespace

StatusOr<Explanation> Explain(const PlanRequest& request, const AlgorithmOverrides& overrides) {
  Explanation explanation;
  explanation.kind = request.kind;
  explanation.num_hosts = NumHosts(*request.topology);
  CRIA_ASSIGN_OR_RETURN(explanation.candidates, PriceCandidates(request));
  CRIA_ASSIGN_OR_RETURN(explanation.plan, BuildPlan(request, overrides));
  for (const Candidate& candidate : explanation.candidates) {
    if (candidate.shape.algorithm == explanation.plan.algorithm) explanation.chosen = candidate;
  }
  return explanation;
}

std::string TextOf(const Explanation& explanation, int max_lines) {
  const Plan& plan = explanation.plan;
  const double bytes = static_cast<double>(plan.count) * static_cast<double>(ByteSize(plan.dtype));
  std::string text = StrCat(Name(explanation.kind), " of ", plan.count, " ", Name(plan.dtype), " (",
                            HumanBytes(bytes), ")");
  if (Reduces(plan.kind)) text += StrCat(", ", Name(plan.reduce_op));
  text += StrCat(": ", plan.size, " ranks on ", explanation.num_hosts, " host",
                 explanation.num_hosts == 1 ? "" : "s", "\n\n");
  text += StrFormat("  %-17s %7s %11s %11s %12s %10s %11s\n", "algorithm", "rounds", "sent/rank",
                    "latency us", "bandwidth us", "reduce us", "total us");
  for (const Candidate& candidate : explanation.candidates) {
    const bool chosen = candidate.shape.algorithm == plan.algorithm;
    const char* name = Name(candidate.shape.algorithm);
    if (!candidate.why_not.empty()) {
      text +=
          StrFormat("%c %-17s %7s %s\n", chosen ? '*' : ' ', name, "-", candidate.why_not.c_str());
      continue;
    }
    const PlanCost& cost = candidate.cost;
    text += StrFormat(
        "%c %-17s %7d %11s %11s %12s %10s %11s  %s\n", chosen ? '*' : ' ', name, cost.rounds,
        HumanBytes(cost.bytes_sent_max).c_str(), Microseconds(cost.latency_us).c_str(),
        Microseconds(cost.bandwidth_us).c_str(), Microseconds(cost.reduce_us).c_str(),
        Microseconds(cost.total_us()).c_str(), ShapeText(candidate, plan.kind).c_str());
  }
  text += StrFormat("\nrank %d's rounds, digest %016llx, scratch %s:\n", plan.rank,
                    static_cast<unsigned long long>(plan.digest),
                    HumanBytes(static_cast<double>(plan.scratch_elements) *
                               static_cast<double>(ByteSize(AccumulateType(plan.dtype))))
                        .c_str());
  return text + RoundsText(plan, max_lines);
}

StatusOr<std::string> JsonOf(const Explanation& explanation) {
  const Plan& plan = explanation.plan;
  Json candidates = Json::array();
  for (const Candidate& candidate : explanation.candidates) {
    Json row = {{"algorithm", Name(candidate.shape.algorithm)}};
    if (!candidate.why_not.empty()) {
      row["why_not"] = candidate.why_not;
    } else {
      row["shape"] = ShapeText(candidate, plan.kind);
      row["rounds"] = candidate.cost.rounds;
      row["bytes_sent_max"] = candidate.cost.bytes_sent_max;
      row["latency_us"] = candidate.cost.latency_us;
      row["bandwidth_us"] = candidate.cost.bandwidth_us;
      row["reduce_us"] = candidate.cost.reduce_us;
      row["total_us"] = candidate.cost.total_us();
    }
    candidates.push_back(std::move(row));
  }
  const Json json = {{"op", Name(explanation.kind)},
                     {"dtype", Name(plan.dtype)},
                     {"count", plan.count},
                     {"ranks", plan.size},
                     {"hosts", explanation.num_hosts},
                     {"chosen", Name(plan.algorithm)},
                     {"plan_rounds", plan.rounds.size()},
                     {"scratch_elements", plan.scratch_elements},
                     {"candidates", std::move(candidates)}};
  return DumpJson(json, 2);
}

}  // namespace cria::comm

#include "comm/plan/planner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "comm/plan/cost.h"
#include "comm/plan/simple_cost.h"

namespace cria::comm {
namespace {

std::string AlgorithmNames() {
  std::string names;
  for (int i = 0; i < kNumAlgorithms; ++i) {
    names += StrCat(i == 0 ? "" : ", ", Name(static_cast<Algorithm>(i)));
  }
  return names;
}

StatusOr<Algorithm> ParseAlgorithm(const std::string& name) {
  for (int i = 0; i < kNumAlgorithms; ++i) {
    if (name == Name(static_cast<Algorithm>(i))) return static_cast<Algorithm>(i);
  }
  return InvalidArgumentError("algorithm \"", name, "\" is none of ", AlgorithmNames());
}

std::string WithoutUnderscores(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  return text;
}

// "all_reduce" or, as others write it, "allreduce".
StatusOr<OpKind> ParsePlannedKind(const std::string& name) {
  for (int i = 0; i < kNumOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kGroup) continue;
    if (WithoutUnderscores(name) == WithoutUnderscores(Name(kind))) return kind;
  }
  return ParseOpKind(name);
}

// A barrier in terms of the others; what has no plan is refused.
StatusOr<PlanRequest> Normalize(PlanRequest request) {
  CRIA_CHECK(request.topology != nullptr && request.topology->size() > 0);
  const int n = request.topology->size();
  const bool in_range = request.rank >= 0 && request.rank < n && request.root >= 0 &&
                        request.root < n && request.count >= 0;
  if (!in_range) {
    return InvalidArgumentError(Name(request.kind), ": rank ", request.rank, ", root ",
                                request.root, ", count ", request.count, " of ", n, " ranks");
  }
  const bool v = request.kind == OpKind::kAllGatherV || request.kind == OpKind::kReduceScatterV;
  const size_t num_counts = v ? static_cast<size_t>(n) : 0;
  if (request.counts.size() != num_counts ||
      (!request.displacements.empty() && request.displacements.size() != num_counts)) {
    return InvalidArgumentError(Name(request.kind), ": ", request.counts.size(), " counts and ",
                                request.displacements.size(), " displacements of ", n, " ranks");
  }
  switch (request.kind) {
    case OpKind::kAllToAllV:
    case OpKind::kSend:
    case OpKind::kRecv:
    case OpKind::kGroup:
      return InvalidArgumentError(Name(request.kind), " is not planned by the planner");
    case OpKind::kBarrier:
      request.kind = OpKind::kAllReduce;
      request.dtype = DataType::kUint8;
      request.reduce_op = ReduceOp::kMax;
      request.count = 1;
      return request;
    default:
      return request;
  }
}

}  // namespace

StatusOr<AlgorithmOverrides> ParseAlgorithmOverrides(const std::string& text) {
  AlgorithmOverrides overrides;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find(';', start), text.size());
    const std::string entry = text.substr(start, end - start);
    start = end + 1;
    if (entry.empty()) continue;
    const size_t colon = entry.find(':');
    if (colon == std::string::npos) {
      return InvalidArgumentError("\"", entry, "\" has no colon: write OPERATION:ALGORITHM;...");
    }
    CRIA_ASSIGN_OR_RETURN(const OpKind kind, ParsePlannedKind(entry.substr(0, colon)));
    CRIA_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(entry.substr(colon + 1)));
    if (!overrides.emplace(kind, algorithm).second) {
      return InvalidArgumentError(Name(kind), " stands twice in \"", text, "\"");
    }
  }
  return overrides;
}

StatusOr<std::vector<Candidate>> PriceCandidates(const PlanRequest& asked) {
  CRIA_ASSIGN_OR_RETURN(const PlanRequest request, Normalize(asked));
  const GroupShape group = ShapeOf(*request.topology);
  std::vector<Candidate> candidates;
  for (int i = 0; i < kNumAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    Candidate candidate;
    candidate.shape.algorithm = algorithm;
    candidate.why_not = WhyNot(request, algorithm);
    if (candidate.why_not.empty() && algorithm == Algorithm::kHierarchical &&
        group.num_hosts == 1) {
      candidate.why_not = "one host: the same as flat";
    }
    if (candidate.why_not.empty()) {
      const auto cheapest = CheapestShape(request, group, algorithm);
      candidate.shape = cheapest->shape;
      candidate.cost = cheapest->cost;
    }
    candidates.push_back(std::move(candidate));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.why_not.empty() != b.why_not.empty()) return a.why_not.empty();
                     return a.why_not.empty() && a.cost.total_us() < b.cost.total_us();
                   });
  return candidates;
}

StatusOr<PlanShape> ChooseShape(const PlanRequest& asked, const AlgorithmOverrides& overrides) {
  CRIA_ASSIGN_OR_RETURN(const PlanRequest request, Normalize(asked));
  const auto found = overrides.find(asked.kind);
  if (found == overrides.end()) {
    CRIA_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, PriceCandidates(request));
    return candidates.front().shape;
  }
  const std::string why_not = WhyNot(request, found->second);
  if (!why_not.empty()) {
    return InvalidArgumentError("CRIA_COMM_ALGO asks for ", Name(found->second), " for ",
                                Name(asked.kind), ": ", why_not);
  }
  return CheapestShape(request, ShapeOf(*request.topology), found->second)->shape;
}

StatusOr<Plan> BuildPlan(const PlanRequest& asked, const AlgorithmOverrides& overrides) {
  CRIA_ASSIGN_OR_RETURN(const PlanRequest request, Normalize(asked));
  CRIA_ASSIGN_OR_RETURN(const PlanShape shape, ChooseShape(asked, overrides));
  return BuildShape(request, shape);
}

}  // namespace cria::comm

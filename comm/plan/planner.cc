#include "comm/plan/planner.h"

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "comm/plan/plan_shape.h"

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

constexpr int64_t kFlatBytes = 64 << 10;

bool OneHost(const GroupTopology& topology) {
  const auto& hosts = topology.host_of_rank;
  return std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; });
}

// A barrier in terms of the others; what has no plan is refused.
StatusOr<PlanRequest> Normalize(PlanRequest request) {
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

StatusOr<Plan> BuildPlan(const PlanRequest& asked, const AlgorithmOverrides& overrides) {
  CRIA_ASSIGN_OR_RETURN(const PlanRequest request, Normalize(asked));
  PlanShape shape;
  if (const auto found = overrides.find(asked.kind); found != overrides.end()) {
    const std::string why_not = WhyNot(request, found->second);
    if (!why_not.empty()) {
      return InvalidArgumentError("CRIA_COMM_ALGO: ", Name(found->second), " for ",
                                  Name(request.kind), ": ", why_not);
    }
    shape.algorithm = found->second;
  } else if (!OneHost(*request.topology) && request.count * ByteSize(request.dtype) > kFlatBytes &&
             WhyNot(request, Algorithm::kRing).empty()) {
    shape.algorithm = Algorithm::kRing;
  }
  return BuildShape(request, shape);
}

}  // namespace cria::comm

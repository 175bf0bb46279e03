// Why this algorithm: the candidates with their costs, the chosen plan's rounds.
//
//   CRIA_ASSIGN_OR_RETURN(const Explanation explanation, Explain(request, overrides));
//   std::fputs(TextOf(explanation).c_str(), stdout);
//
// Thread-safe: pure functions. Errors: those of BuildPlan.

#ifndef CRIA_COMM_PLAN_EXPLAIN_H_
#define CRIA_COMM_PLAN_EXPLAIN_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "comm/plan/planner.h"

namespace cria::comm {

struct Explanation {
  OpKind kind = OpKind::kAllReduce;  // as asked: a barrier's plan is an all_reduce
  int num_hosts = 1;
  std::vector<Candidate> candidates = {};
  Candidate chosen = {};
  Plan plan = {};  // of the request's rank
};

StatusOr<Explanation> Explain(const PlanRequest& request, const AlgorithmOverrides& overrides = {});

// A table of the candidates (the chosen one starred; why not, where one cannot run), then the
// plan's rounds as the rank sees them, equal neighbours on one line, `max_lines` lines at most.
std::string TextOf(const Explanation& explanation, int max_lines = 40);

// One object: op, dtype, count, ranks, hosts, chosen, candidates (algorithm, shape, rounds,
// bytes_sent_max, latency_us, bandwidth_us, reduce_us, total_us, why_not).
StatusOr<std::string> JsonOf(const Explanation& explanation);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_EXPLAIN_H_

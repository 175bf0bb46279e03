// Runs cases of the conformance suite, each in fresh rank processes under a watchdog, so that a
// library that crashes or hangs fails a row and never ends the suite.
//
//   const CaseResult result = RunCase(c, "gloo", {});
//
// Single-threaded.

#ifndef CRIA_COMM_CONFORMANCE_RUNNER_H_
#define CRIA_COMM_CONFORMANCE_RUNNER_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "comm/conformance/case.h"

namespace cria::comm {

enum class Verdict { kPass, kFail, kSkip };
const char* Name(Verdict verdict);

struct CaseResult {
  Verdict verdict = Verdict::kPass;
  std::string why = {};  // of a failure or a skip
  double seconds = 0;
};

// With each of the case's numbers of ranks, or with those of `ranks` when there are any. The first
// failure is the result.
CaseResult RunCase(const Case& c, const std::string& impl, const std::vector<int>& ranks);

// What a rank process of a case does: joins, runs the body, leaves its outcome in the folder.
Status RunCaseRank(const std::string& name, const std::string& impl, const std::string& folder);

}  // namespace cria::comm

#endif  // CRIA_COMM_CONFORMANCE_RUNNER_H_

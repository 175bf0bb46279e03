// One row of the conformance suite: a fault that some library had in public, as a test that takes
// any communicator.
//
//   Status Body(CaseContext& context) {
//     CRIA_RETURN_IF_ERROR(context.world->AllReduce({...}).Wait());
//     return Expect(x[0] == 3, "x[0] is ", x[0]);
//   }
//
// A body runs in every rank process of a fresh job. OK: passed. Unimplemented: skipped, with the
// reason. Anything else: failed. A rank that hangs or crashes fails from outside.
// Thread-compatible.

#ifndef CRIA_COMM_CONFORMANCE_CASE_H_
#define CRIA_COMM_CONFORMANCE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/bench/board.h"
#include "comm/bench/join.h"
#include "comm/bench/verifier.h"

namespace cria::comm {

struct CaseContext {
  std::string impl;
  RankIdentity identity = {};
  std::string folder = {};
  Board* board = nullptr;         // of this job, beside the library
  Communicator* world = nullptr;  // null for cases that join themselves

  int rank() const { return identity.rank; }
  int size() const { return identity.size; }
  // For cases that join themselves.
  StatusOr<Joined> Join(double timeout_s) const;
  // A group of all ranks under a new name: cases that break a communicator take one for each part.
  StatusOr<std::unique_ptr<Communicator>> Everybody(const std::string& name) const;
};

struct Case {
  const char* name;        // "empty_counts"
  int row;                 // of the table in research/comm.md
  const char* reports;     // the public reports: "gloo#179"
  const char* what;        // what must hold
  std::vector<int> ranks;  // numbers of ranks it runs with
  Status (*body)(CaseContext& context);
  double limit_s = 40;  // then it hangs
  int dies = 0;         // so many of the last ranks end without a result, on purpose
  bool joins_itself = false;
  std::vector<const char*> impls = {};  // for which it means something; empty: all
};

std::vector<Case> DataCases();
std::vector<Case> ErrorCases();
std::vector<Case> GroupCases();
std::vector<Case> StartCases();
// All of them, by row.
std::vector<Case> AllCases();

// FailedPrecondition with the parts unless `condition`.
template <typename... Parts>
Status Expect(bool condition, const Parts&... parts) {
  return condition ? OkStatus() : FailedPreconditionError(parts...);
}

// One collective with position-dependent values: result, untouched input and surroundings.
struct CheckOptions {
  int64_t input_offset_bytes = 0;  // from a line of the cache
  int64_t output_offset_bytes = 0;
  CallOptions call = {};
};
Status CheckCollective(Communicator* comm, const CollectiveShape& shape,
                       const CheckOptions& options = {});

// The kinds of collectives that move data, one point-to-point ring included.
const std::vector<OpKind>& DataKinds();

// The seconds since some start.
double Now();

}  // namespace cria::comm

#endif  // CRIA_COMM_CONFORMANCE_CASE_H_

// What a rank process of the abort benchmark does: for each operation, many times, all ranks but
// the last call it in a group of their own and so wait for the last one; somebody aborts; each rank
// takes the time from the call of Abort to the end of its wait.
//
// Trials go by turns through: aborted by the rank that stays away, or by a thread of rank 0, which
// waits itself; in a group that was used before, or at its first use; blocking calls, or
// asynchronous ones; with waits of 0 to 60 ms before the abort, so that waiters spin, yield and
// sleep. Single-threaded but for the library and the aborting thread.

#ifndef CRIA_COMM_BENCH_ABORT_ABORT_RANK_H_
#define CRIA_COMM_BENCH_ABORT_ABORT_RANK_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace cria::comm {

struct AbortTrials {
  int trials = 20;  // of each operation
  int64_t bytes = 64 << 10;
};

// Rank 0 leaves a JSON array in AbortRowsPath(folder), an object for each operation: op, waits (how
// many were under way at the abort), median_ms, greatest_ms. Internal when a wait did not end by
// the abort.
Status RunAbortRank(const AbortTrials& trials, const std::string& folder);
std::string AbortRowsPath(const std::string& folder);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_ABORT_ABORT_RANK_H_

// How ranks that were started by anything find each other: one small TCP service, one exchange.
//
//   CRIA_ASSIGN_OR_RETURN(RankEnvironment environment, ReadRankEnvironment(ProcessEnvironment()));
//   CRIA_ASSIGN_OR_RETURN(RankMap map, GatherRankMap(environment, mine, {.timeout_s = 60}));
//
// Rank 0 serves at MASTER_ADDR:MASTER_PORT (or a stand-alone server does: rendezvous_main); the
// records travel up a tree of ranks and the whole map travels down it: O(log N) rounds, no rank
// holds more than the tree's degree of connections. Groups are derived from the map by each rank
// alone. Thread-safe. Errors: DeadlineExceeded names the ranks that did not come (the first of
// them, and how many), InvalidArgument two ranks with one number or another world size, with their
// addresses; Unavailable when the master cannot be reached.

#ifndef CRIA_COMM_RENDEZVOUS_RENDEZVOUS_H_
#define CRIA_COMM_RENDEZVOUS_RENDEZVOUS_H_

#include <string>

#include "base/status.h"
#include "comm/engine/rank_map.h"
#include "comm/rendezvous/rank_environment.h"

namespace cria::comm {

struct RendezvousOptions {
  double timeout_s = 300;
  int degree = 16;  // of the tree
};

// All ranks of the job call it once. `mine` is this rank's record; map[environment.rank] == mine.
StatusOr<RankMap> GatherRankMap(const RankEnvironment& environment, const RankInfo& mine,
                                const RendezvousOptions& options);

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_RENDEZVOUS_H_

// How ranks that were started by anything find each other: one small TCP service, one exchange.
//
//   CRIA_ASSIGN_OR_RETURN(RankEnvironment environment, ReadRankEnvironment(ProcessEnvironment()));
//   CRIA_ASSIGN_OR_RETURN(RankMap map, GatherRankMap(environment, mine, {.timeout_s = 60}));
//
// Rank 0 serves at MASTER_ADDR:MASTER_PORT (or a stand-alone server does: rendezvous_main; rank 0
// notices that the port is taken, and waits a little for a program that is just ending). Each rank
// asks the master once for its place in a tree; the records travel up the tree and the whole map
// travels down it: O(log N) rounds, no rank holds more than the tree's degree of connections.
// Groups are derived from the map by each rank alone. README.md has the messages. Thread-safe:
// several ranks may live in one process.
//
// Errors, the same on all ranks that have come: DeadlineExceeded names the ranks that did not come
// (the first of them, and how many); InvalidArgument two ranks with one number, or another world
// size, with their addresses; Unavailable a rank that died meanwhile. On one rank: Unavailable or
// DeadlineExceeded when the master cannot be reached, NotFound when its name does not resolve,
// FailedPrecondition when it serves another job, or another program has the port (rank 0's error
// has the reason why it could not serve there: address, port, errno).

#ifndef CRIA_COMM_RENDEZVOUS_RENDEZVOUS_H_
#define CRIA_COMM_RENDEZVOUS_RENDEZVOUS_H_

#include <string>

#include "base/status.h"
#include "comm/engine/rank_map.h"
#include "comm/rendezvous/rank_environment.h"

namespace cria::comm {

struct RendezvousOptions {
  double timeout_s = 300;
  int degree = 32;  // of the tree; the master's counts
  // A master that answered once and is gone (killed, or restarted) is waited for this long.
  double master_restart_s = 10;
  // Another program that holds the master's port is tried for this long, six times as long when it
  // says nothing at all, as a master on a machine that is overrun; rank 0 waits this long for the
  // port.
  double stranger_s = 10;
};

// All ranks of the job call it once. `mine` is this rank's record; map[environment.rank] == mine.
// Its address, where it has one, is also where other ranks of the tree reach this one.
StatusOr<RankMap> GatherRankMap(const RankEnvironment& environment, const RankInfo& mine,
                                const RendezvousOptions& options);

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_RENDEZVOUS_H_

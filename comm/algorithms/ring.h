// Ring: every rank sends to the next and receives from the one before, a part at a time.
//
//   reduce-scatter, 4 ranks: part c starts at rank c+1, is added to at each hop, ends at rank c
//     step 0   0 --c3--> 1 --c0--> 2 --c1--> 3 --c2--> 0
//     step 1   0 --c2--> 1 --c3--> 2 --c0--> 3 --c1--> 0       n-1 steps
//     step 2   0 --c1--> 1 --c2--> 2 --c3--> 3 --c0--> 0       rank c holds the sum of part c
//   all-gather: the finished parts go around once more, n-1 steps.
//
//   all_reduce                  2(n-1) steps, 2(n-1)/n * bytes sent by each rank: the least there
//   is reduce_scatter, all_gather  n-1 steps reduce                      n-1: the owners of the
//   finished parts hand them to the root broadcast                   a pipeline along the ring,
//   n-2+chunks steps
//
// Only neighbours talk, so an order in which hosts and racks are contiguous crosses each of their
// borders once. Wins for large operations on few ranks; its latency grows with n. A partial is
// added to at each of n-1 hops, in float32 for 16-bit types; one rounding. Scratch: two parts.
//
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.

#ifndef CRIA_COMM_ALGORITHMS_RING_H_
#define CRIA_COMM_ALGORITHMS_RING_H_

#include "comm/algorithms/collective.h"

namespace cria::comm {

// Rounds of a ring of n: what BuildRing adds.
int RingRounds(OpKind kind, int n, int num_chunks);

// kind: all_reduce, reduce, broadcast, all_gather, reduce_scatter.
void BuildRing(const Collective& collective, PlanBuilder* builder);

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_RING_H_

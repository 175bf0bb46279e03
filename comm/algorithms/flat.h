// Flat: one round; every slice has one owner that reads all inputs and writes all outputs.
//
//   all_reduce, 3 ranks        in 0: [a0 b0 c0]   in 1: [a1 b1 c1]   in 2: [a2 b2 c2]
//                                  |  owner 0: A = a0+a1+a2 -> output[0] of all
//                                  |  owner 1: B = b0+b1+b2 -> output[1] of all
//                                  |  owner 2: C = c0+c1+c2 -> output[2] of all
//
// Over shared memory this moves the least possible: each input is read once, each output written
// once, and partial sums stay in registers. Over TCP it is a direct reduce-scatter and all-gather:
// 2(n-1) messages of bytes/n a rank, two hops; best while n is small. Operations too small to cut
// have a single owner, the root where there is one. Sources combine in order of position; one
// rounding.
// No scratch. all_to_all, gather and scatter in one round: pairwise.h.

#ifndef CRIA_COMM_ALGORITHMS_FLAT_H_
#define CRIA_COMM_ALGORITHMS_FLAT_H_

#include "comm/algorithms/collective.h"

namespace cria::comm {

inline constexpr int kFlatRounds = 1;

// kind: all_reduce, reduce, broadcast, all_gather, reduce_scatter.
void BuildFlat(const Collective& collective, PlanBuilder* builder);

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_FLAT_H_

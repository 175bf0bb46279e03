// Halving and doubling: log2(n) exchanges with partners at distances 1, 2, 4, ...
//
//   all_reduce, 4 ranks, bytes halve at each step:      then the same way back, doubling:
//     step 0   0 <-S/2-> 1     2 <-S/2-> 3                step 2   0 <-S/4-> 2    1 <-S/4-> 3
//     step 1   0 <-S/4-> 2     1 <-S/4-> 3                step 3   0 <-S/2-> 1    2 <-S/2-> 3
//
//   all_reduce (Rabenseifner)  2 log2(n) steps, 2(n-1)/n * bytes a rank: the ring's bytes in far
//                              fewer steps; the largest exchanges are with the nearest partners
//   with recursive_doubling    log2(n) steps of all bytes, for operations that cost latency only;
//                              4 ranks and more
//   reduce                     log2(n): the owners of the finished parts hand them to the root
//   broadcast                  1 + log2(n): the root scatters, then as all_reduce's second half
//   reduce_scatter             log2(n), the largest exchange with the farthest partner (its parts
//                              lie together)
//   all_gather                 log2(n), the nearest and smallest first
//
// Other numbers than powers of two: the first n - 2^k pairs of neighbours act as one (a group).
// Both of a pair take part in the first reducing step, as sources, and in the last gathering step,
// as targets, so that a pair costs no step of its own: its first takes 1.5 * bytes in them.
// A partial is added to at each step, in float32 for 16-bit types; one rounding; ranks that both
// compute a value (recursive doubling) combine it in the same order. Scratch: half of the bytes
// (recursive doubling: twice the bytes).
//
// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur et
// al., IJHPCA 2005.

#ifndef CRIA_COMM_ALGORITHMS_HALVING_DOUBLING_H_
#define CRIA_COMM_ALGORITHMS_HALVING_DOUBLING_H_

#include "comm/algorithms/collective.h"

namespace cria::comm {

// Rounds of what BuildHalvingDoubling adds.
int HalvingDoublingRounds(OpKind kind, int n, bool recursive_doubling);

// kind: all_reduce, reduce, broadcast, all_gather, reduce_scatter.
void BuildHalvingDoubling(const Collective& collective, PlanBuilder* builder);

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_HALVING_DOUBLING_H_

// Pairwise: data that only moves, one part for each pair of ranks.
//
//   all_to_all, 4 ranks, round d: rank r sends to r+d and receives from r-d
//     d=1   0->1 1->2 2->3 3->0      each rank sends to one and receives from one: no rank is
//     d=2   0->2 1->3 2->0 3->1      flooded while others wait (incast)
//     d=3   0->3 1->0 2->1 3->2
//
// Three schedules of the same transfers (`Schedule`): pairwise, n-1 rounds as above; flat, all in
// one round (fewest waits, for few ranks or small parts); hierarchical, the partners on this host
// in one round of shared memory, then the others in one round of TCP. gather and scatter are the
// rows and columns of the root.
// all_to_all: (n-1)/n * bytes sent by each rank, in any schedule. Not in place: who has one buffer
// gives a copy of it as the input (plan.h), which is a matter of that rank alone. No scratch.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 2005.

#ifndef CRIA_COMM_ALGORITHMS_PAIRWISE_H_
#define CRIA_COMM_ALGORITHMS_PAIRWISE_H_

#include <cstdint>
#include <span>

#include "comm/algorithms/collective.h"

namespace cria::comm {

enum class Schedule : uint8_t { kFlat, kPairwise, kHierarchical };

// kind: all_to_all (part i of the input goes to position i), gather, scatter. kHierarchical: the
// collective's link is that inside the hosts, and host_of_rank counts.
void BuildTransfers(const Collective& collective, Schedule schedule,
                    std::span<const int> host_of_rank, PlanBuilder* builder);

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_PAIRWISE_H_

// The algorithms that know nothing of hosts, by name: alone, or as a part of a hierarchical plan.
// Thread-safe: pure functions.

#ifndef CRIA_COMM_ALGORITHMS_SIMPLE_H_
#define CRIA_COMM_ALGORITHMS_SIMPLE_H_

#include "comm/algorithms/collective.h"

namespace cria::comm {

// True for flat, ring, halving_doubling and double_tree where they have this kind (all_reduce,
// reduce, broadcast, all_gather, reduce_scatter).
bool HasSimple(Algorithm algorithm, OpKind kind);

// HasSimple(algorithm, collective.kind) holds.
void BuildSimple(Algorithm algorithm, const Collective& collective, PlanBuilder* builder);

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_SIMPLE_H_

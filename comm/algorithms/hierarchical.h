// Hierarchical: shared memory inside a host, one of the simple algorithms between hosts, on as many
// lanes as the smallest host has ranks, so that all of a host's ranks send at once and each byte
// crosses the network once for the host, not once for each rank.
//
//   all_reduce, hosts A and B of two ranks         A0 A1 | B0 B1
//     1. inside: slice j to the carrier of lane j   A0: A's sum of slice 0    A1: of slice 1
//     2. between: each lane by itself               A0 <-> B0                 A1 <-> B1
//     3. inside: everyone takes the other slices    A0 -> A1, A1 -> A0
//
// reduce, broadcast, all_gather and reduce_scatter do the steps that they need. Hosts with more
// ranks than lanes: the others help to reduce and take their results; hosts of one rank each: step
// 2 alone. all_to_all, gather, scatter: pairwise.h.
//
// all_reduce by tier (`units`: pods of equally many hosts): step 2 is itself cut: a reduce-scatter
// inside the pod, `across` between the carriers of the same piece of all pods, an all-gather inside
// the pod. Out of a pod goes what a ring of pods would send, 2 (P-1)/P * bytes, in steps that
// grow with the number of pods alone.
//
// Bytes between hosts, all_reduce by ring or halving_doubling: 2 (H-1)/H * bytes/lanes a carrier.
// A host's inputs combine in rank order; partials in float32 for 16-bit types; one rounding.
// Scratch: bytes/lanes and what the algorithm between hosts needs.
// Source: the scheme is folklore; see Thakur et al. 2005 for the parts.

#ifndef CRIA_COMM_ALGORITHMS_HIERARCHICAL_H_
#define CRIA_COMM_ALGORITHMS_HIERARCHICAL_H_

#include <vector>

#include "comm/algorithms/collective.h"
#include "comm/algorithms/host_layout.h"

namespace cria::comm {

struct HierarchicalShape {
  Algorithm between = Algorithm::kRing;  // hosts, or with units the hosts of one unit
  int num_chunks = 1;                    // of `between`, or of `across`
  bool recursive_doubling = false;       // the same
  // all_reduce by tier: as many neighbouring hosts of the layout's order as a unit has; 0: none.
  int hosts_per_unit = 0;
  Algorithm across = Algorithm::kRing;  // the units
};

// kind: all_reduce, reduce, broadcast, all_gather, reduce_scatter. The collective is of all ranks
// in rank order (position = rank); its link is that inside the hosts. More than one host.
void BuildHierarchical(const Collective& collective, const HostLayout& layout,
                       const HierarchicalShape& shape, PlanBuilder* builder);

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_HIERARCHICAL_H_

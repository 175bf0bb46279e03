// A job of thousands of virtual ranks (virtual_rank.h), started once and measured.
//
//   CRIA_ASSIGN_OR_RETURN(const InitSample sample, RunVirtualJob({.num_ranks = 8192}));
//
// The ranks are spread over processes with one event loop each: two, or as many as the limit of
// descriptors of a process demands. Call it from a process without other threads: it forks.
// Errors: ResourceExhausted when the descriptors do not suffice; those of the rendezvous.

#ifndef CRIA_COMM_BENCH_INIT_VIRTUAL_JOB_H_
#define CRIA_COMM_BENCH_INIT_VIRTUAL_JOB_H_

#include <cstdint>

#include "base/status.h"
#include "comm/bench/init/sample.h"

namespace cria::comm {

enum class InitScheme {
  kCria,   // comm/rendezvous, groups from the mesh, lazy connections (virtual_rank.h)
  kStore,  // a store, a full mesh, a barrier a group (store_rank.h)
};

struct VirtualJobOptions {
  InitScheme scheme = InitScheme::kCria;
  int num_ranks = 64;
  int num_groups = 8;
  int ranks_per_host = 8;
  int num_processes = 2;  // at least
  int degree = 32;        // of the rendezvous tree
  double timeout_s = 60;
};

StatusOr<InitSample> RunVirtualJob(const VirtualJobOptions& options);

// Descriptors that this process may open, up to `wanted`: raises the limit where that is allowed.
int64_t AllowDescriptors(int64_t wanted);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_VIRTUAL_JOB_H_

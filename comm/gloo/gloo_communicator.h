// gloo behind the interface of comm/api: a peer to measure and to compare with, nothing else.
//
//   CRIA_ASSIGN_OR_RETURN(GlooWorld world, JoinGlooWorld({.size = 2, .folder = folder}));
//   world.set_all_reduce(GlooAllReduce::kBcube);
//   world.communicator->AllReduce({...});
//
// gloo as it is (Debian's, of May 2022): TCP on 127.0.0.1, a connection from each rank to each, the
// addresses exchanged by gloo's FileStore in `folder`. What gloo lacks is Unimplemented: avg,
// bfloat16 and FP8 in reductions, reduce_scatter_v. It cannot abort a call that runs: Abort waits
// for nothing, and the call ends with its timeout. What gloo gets wrong stays wrong.
// Its exceptions stop here. Timeouts are gloo's, given each operation's.
// Thread-safety as in communicator.h.

#ifndef CRIA_COMM_GLOO_GLOO_COMMUNICATOR_H_
#define CRIA_COMM_GLOO_GLOO_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "comm/api/communicator.h"

namespace cria::comm {

// gloo's ways to all-reduce: two of its new interface, one of its old, which is faster for some
// sizes. The benchmark takes the fastest.
enum class GlooAllReduce : uint8_t { kRing, kBcube, kHalvingDoubling };
inline constexpr int kNumGlooAllReduces = 3;
const char* Name(GlooAllReduce algorithm);

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string folder = {};  // empty at the start, the same for all ranks
  std::string name = "world";
  double timeout_s = 300;
};

struct GlooWorld {
  std::unique_ptr<Communicator> communicator;
  // Of the communicator's next operations, the same on all ranks; ring at first.
  std::function<void(GlooAllReduce)> set_all_reduce;
};

StatusOr<GlooWorld> JoinGlooWorld(const GlooOptions& options);

}  // namespace cria::comm

#endif  // CRIA_COMM_GLOO_GLOO_COMMUNICATOR_H_

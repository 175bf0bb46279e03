// The physical bound of a collective on one host: the bytes that every rank must read and write at
// least, moved by a loop that does nothing else.
//
//   const Traffic traffic = TrafficOf(shape, size);
//   TrafficKernel kernel(traffic);
//   kernel.Run(TrafficStores::kWide);      // all ranks at once; the fastest way is the bound
//
// No copy, no synchronisation: inputs read once, outputs written once, work shared evenly. What a
// collective takes beyond it is copies, waiting and arithmetic. Thread-compatible.

#ifndef CRIA_COMM_BENCH_TRAFFIC_H_
#define CRIA_COMM_BENCH_TRAFFIC_H_

#include <cstdint>
#include <memory>

#include "comm/bench/verifier.h"

namespace cria::comm {

// Of one rank, in bytes.
struct Traffic {
  int64_t read = 0;
  int64_t written = 0;
};

Traffic TrafficOf(const CollectiveShape& shape, int size);

// Ways to move them: which one is fastest depends on the size and the machine.
enum class TrafficStores : uint8_t {
  kPlain,        // through the caches
  kNonTemporal,  // past them, 16 bytes at a time
  kWide,         // past them, by the copy of comm/reduce where as much is written as read
};
inline constexpr int kNumTrafficStores = 3;

class TrafficKernel {
 public:
  explicit TrafficKernel(const Traffic& traffic);
  // Reads `read` bytes and writes `written` bytes of memory of its own.
  void Run(TrafficStores stores);

 private:
  struct Free {
    void operator()(void* p) const;
  };
  const Traffic traffic_;
  std::unique_ptr<float, Free> source_, target_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_TRAFFIC_H_

#include "comm/bench/traffic.h"

#include <gtest/gtest.h>

namespace cria::comm {
namespace {

TEST(TrafficTest, CountsWhatMustMove) {
  // Of 8 MB on 4 ranks, by rank: an all_reduce reads its input once and writes its output once...
  const auto of = [](OpKind kind, int64_t count, bool in_place = false) {
    const Traffic traffic =
        TrafficOf({.kind = kind, .count = count, .in_place = in_place}, /*size=*/4);
    return std::pair(traffic.read, traffic.written);
  };
  EXPECT_EQ(of(OpKind::kAllReduce, 2'000'000), std::pair(int64_t{8'000'000}, int64_t{8'000'000}));
  // ... a reduce_scatter writes a quarter, an all_gather in place leaves its own quarter alone.
  EXPECT_EQ(of(OpKind::kReduceScatter, 500'000), std::pair(int64_t{8'000'000}, int64_t{2'000'000}));
  EXPECT_EQ(of(OpKind::kAllGather, 500'000, true),
            std::pair(int64_t{8'000'000}, int64_t{6'000'000}));
}

TEST(TrafficTest, KernelStaysInItsMemory) {
  // Under AddressSanitizer: all shapes of read and written bytes.
  for (const int64_t read : {0, 1, 63, 64, 65, 1000, 4096}) {
    for (const int64_t written : {0, 1, 64, 100, 1024, 4096, 5000}) {
      TrafficKernel kernel({.read = read, .written = written});
      kernel.Run(TrafficStores::kPlain);
      kernel.Run(TrafficStores::kNonTemporal);
      kernel.Run(TrafficStores::kWide);
    }
  }
}

}  // namespace
}  // namespace cria::comm

#include "comm/shm/offset_allocator.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>

#include "base/rng.h"

namespace cria::comm {
namespace {

TEST(OffsetAllocatorTest, RangesNeverOverlapAndAllComesBack) {
  OffsetAllocator allocator(1000, 1'000'000);
  const Rng rng(5, 6);
  std::map<int64_t, int64_t> held;
  for (uint64_t step = 0; step < 5000; ++step) {
    if (held.size() < 40 && rng.Below(3 * step, 2) == 0) {
      const auto bytes = static_cast<int64_t>(1 + rng.Below(3 * step + 1, 30'000));
      const int64_t alignment = int64_t{1} << rng.Below(3 * step + 2, 13);
      const auto offset = allocator.Allocate(bytes, alignment);
      if (!offset) continue;
      ASSERT_EQ(*offset % alignment, 0);
      ASSERT_GE(*offset, 1000);
      ASSERT_LE(*offset + bytes, 1'000'000);
      const auto next = held.lower_bound(*offset);
      ASSERT_TRUE(next == held.end() || *offset + bytes <= next->first);
      ASSERT_TRUE(next == held.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= *offset);
      held[*offset] = bytes;
    } else if (!held.empty()) {
      auto victim = held.begin();
      std::advance(victim, static_cast<int64_t>(rng.Below(3 * step + 1, held.size())));
      ASSERT_EQ(allocator.BytesOf(victim->first), victim->second);
      allocator.Free(victim->first);
      held.erase(victim);
    }
  }
  for (const auto& [offset, bytes] : held) allocator.Free(offset);
  EXPECT_EQ(allocator.bytes_free(), 999'000);
  // One piece again.
  EXPECT_EQ(allocator.Allocate(999'000, 1), 1000);
  EXPECT_FALSE(allocator.Allocate(1, 1).has_value());
}

}  // namespace
}  // namespace cria::comm

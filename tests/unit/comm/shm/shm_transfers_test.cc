// Sends and receives between threads: each way that bytes take, sizes and places that break others.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/str.h"
#include "comm/api/error.h"
#include "comm/shm/shm_domain.h"
#include "tests/unit/comm/shm/shm_ranks.h"

namespace cria::comm {
namespace {

std::byte ByteAt(int from, int to, int64_t i) {
  return static_cast<std::byte>(i * 31 + i / 251 + from * 7 + to * 3);
}

// Memory for one message, in the segment or not.
struct Place {
  std::unique_ptr<SharedBuffer> shared;
  std::vector<std::byte> own;
  std::byte* data = nullptr;
};
Place MakePlace(ShmRank& rank, int64_t bytes, bool shared, int offset) {
  Place place;
  if (shared) {
    place.shared = *rank.domain().Allocate(bytes + offset);
    place.data = static_cast<std::byte*>(place.shared->data()) + offset;
  } else {
    place.own.resize(static_cast<size_t>(bytes + offset));
    place.data = place.own.data() + offset;
  }
  return place;
}

// Everybody to everybody at once; returns what is wrong.
std::string ExchangeAll(ShmRank& rank, int64_t bytes, bool send_shared, bool recv_shared,
                        int messages) {
  std::vector<Place> places;
  std::vector<Transfer> sends, recvs;
  for (int peer = 0; peer < rank.size(); ++peer) {
    if (peer == rank.rank()) continue;
    for (int k = 0; k < messages; ++k) {
      const int64_t size = bytes + k;
      places.push_back(MakePlace(rank, size, send_shared, (peer + k) % 64));
      for (int64_t i = 0; i < size; ++i) {
        places.back().data[i] = ByteAt(rank.rank(), peer, i + k);
      }
      sends.push_back({.peer = peer, .data = places.back().data, .bytes = size});
      places.push_back(MakePlace(rank, size, recv_shared, (peer + 3 * k + 1) % 64));
      recvs.push_back({.peer = peer, .data = places.back().data, .bytes = size});
    }
  }
  const std::vector<Transfer> expected = recvs;
  const Status status = rank.Exchange(sends, recvs);
  if (!status.ok()) return Message(status);
  for (size_t r = 0; r < expected.size(); ++r) {
    const int k = static_cast<int>(r) % messages;
    for (int64_t i = 0; i < expected[r].bytes; ++i) {
      if (expected[r].data[i] != ByteAt(expected[r].peer, rank.rank(), i + k)) {
        return StrCat("byte ", i, " of message ", k, " from rank ", expected[r].peer);
      }
    }
  }
  return "";
}

TEST(ShmTransfersTest, BytesArriveByEveryWay) {
  for (const int size : {2, 3, 8}) {
    RunShmThreads(size, [](ShmRank& rank) {
      for (const bool send_shared : {false, true}) {
        for (const bool recv_shared : {false, true}) {
          for (const int64_t bytes : {0, 1, 2, 3, 5, 8, 13, 17, 4096, 70'001}) {
            ASSERT_EQ(ExchangeAll(rank, bytes, send_shared, recv_shared, 2), "")
                << "rank " << rank.rank() << ", " << bytes << " bytes, " << send_shared
                << recv_shared;
          }
        }
      }
    });
  }
}

TEST(ShmTransfersTest, LargeMessagesOfBothDirectionsAdvanceTogether) {
  RunShmThreads(2, [](ShmRank& rank) {
    for (const bool send_shared : {false, true}) {
      for (const bool recv_shared : {false, true}) {
        ASSERT_EQ(ExchangeAll(rank, 5'000'011, send_shared, recv_shared, 1), "")
            << send_shared << recv_shared;
      }
    }
  });
}

TEST(ShmTransfersTest, SizesThatDifferAreAMismatchOnBothSides) {
  for (const int64_t bytes : {0, 8, 1'000'000}) {
    std::vector<Status> outcomes(3);
    RunShmThreads(3, [&](ShmRank& rank) {
      std::vector<std::byte> data(static_cast<size_t>(bytes) + 4);
      if (rank.rank() == 0) {
        outcomes[0] = rank.Exchange({{.peer = 1, .data = data.data(), .bytes = bytes}}, {});
      } else if (rank.rank() == 1) {
        outcomes[1] = rank.Exchange({}, {{.peer = 0, .data = data.data(), .bytes = bytes + 4}});
      }
    });
    for (const int rank : {0, 1}) {
      const auto error = GetCommError(outcomes[static_cast<size_t>(rank)]);
      ASSERT_TRUE(error.has_value()) << outcomes[static_cast<size_t>(rank)].ToString();
      EXPECT_EQ(error->kind, CommErrorKind::kMismatch);
    }
  }
}

// Places beyond 2^31 and 2^32 bytes of a segment, which holds memory only where it is touched.
TEST(ShmTransfersTest, PlacesBeyond32BitsAreReached) {
  RunShmThreads(2, [](ShmRank& rank) {
    auto far = rank.domain().Allocate((int64_t{5} << 29) + 4096);
    ASSERT_TRUE(far.ok()) << Message(far.status());
    const int64_t count = 3000;
    auto* numbers = reinterpret_cast<float*>(static_cast<std::byte*>((*far)->data()) +
                                             (int64_t{5} << 29) - 3 * 4 * count);
    for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i * (rank.rank() + 1));
    const Status status = rank.Collective({.kind = OpKind::kAllReduce, .count = count},
                                          Algorithm::kFlat, numbers, numbers + count);
    ASSERT_TRUE(status.ok()) << Message(status);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(numbers[count + i], static_cast<float>(3 * i));
    }
  });
}

TEST(ShmAllocateTest, MemoryIsAlignedReusedAndLimited) {
  auto domain = *ShmDomain::Create({.segment_bytes = int64_t{2} << 30});
  std::vector<std::unique_ptr<SharedBuffer>> buffers;
  for (const int64_t bytes : {1, 64, 65, 3'000'000, 0}) {
    buffers.push_back(*domain->Allocate(bytes));
    EXPECT_EQ(buffers.back()->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back()->data()) % 64, 0u);
  }
  EXPECT_FALSE(domain->Allocate(int64_t{1} << 40).ok());
  EXPECT_FALSE(domain->Allocate(INT64_MAX).ok());
  // Half of the heap, again and again: it comes back.
  for (int i = 0; i < 10; ++i) {
    auto half = domain->Allocate(int64_t{600} << 20);
    ASSERT_TRUE(half.ok()) << Message(half.status());
    static_cast<char*>((*half)->data())[12345] = 1;
  }
  const Status full = domain->Allocate(int64_t{2} << 30).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << Message(full);
}

}  // namespace
}  // namespace cria::comm

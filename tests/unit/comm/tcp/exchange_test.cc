// Point to point over the loopback.

#include <gtest/gtest.h>

#include <array>

#include "base/str.h"
#include "tests/unit/comm/tcp/ranks.h"

namespace cria::comm {
namespace {

using Bytes = std::vector<std::byte>;

// What travels from one rank to another as its number-th message: different in every position.
Bytes MessageOf(int from, int to, uint64_t number, int64_t bytes) {
  Bytes message(static_cast<size_t>(bytes));
  for (size_t i = 0; i < message.size(); ++i) {
    message[i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<size_t>(from) * 31 +
                                        static_cast<size_t>(to) * 17 + number * 13);
  }
  return message;
}

Transfer To(int peer, Bytes* data, uint64_t number) {
  return {.peer = peer,
          .data = data->data(),
          .bytes = static_cast<int64_t>(data->size()),
          .number = number};
}

TEST(ExchangeTest, AllPairsAtOnceInAnyOrderOfSizes) {
  constexpr int kSize = 4;
  for (const int streams : {1, 3}) {
    Ranks ranks(kSize, {.address = "127.0.0.1", .streams = streams});
    Group group(&ranks, "dp");
    constexpr int64_t kBytes[] = {0, 1, 100'000, 3'000'001};
    std::array<Status, kSize> status;
    RunRanks(kSize, [&](int rank) {
      std::vector<Bytes> out, in;
      std::vector<Transfer> sends, recvs;
      out.reserve(64);
      in.reserve(64);
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer == rank) continue;
        for (uint64_t number = 1; number <= 4; ++number) {
          const auto bytes = [&](int from, int to) {
            return kBytes[(static_cast<uint64_t>(from + 2 * to) + number) % 4];
          };
          out.push_back(MessageOf(rank, peer, number, bytes(rank, peer)));
          in.push_back(Bytes(static_cast<size_t>(bytes(peer, rank))));
          sends.push_back(To(peer, &out.back(), number));
          recvs.push_back(To(peer, &in.back(), number));
        }
      }
      status[static_cast<size_t>(rank)] = group.at(rank).Exchange(sends, recvs);
      for (size_t i = 0; i < recvs.size(); ++i) {
        EXPECT_EQ(in[i], MessageOf(recvs[i].peer, rank, recvs[i].number, recvs[i].bytes));
      }
    });
    for (const Status& one : status) EXPECT_TRUE(one.ok()) << one;
  }
}

// One side in a group, the other one after another: neither direction stands in the other's way.
TEST(ExchangeTest, AGroupMatchesSingleCalls) {
  constexpr int64_t kBytes = 20 << 20;  // more than the sockets hold
  Ranks ranks(2);
  Group group(&ranks, "dp");
  std::array<Status, 3> status;
  Bytes x = MessageOf(0, 1, 1, kBytes), y = MessageOf(1, 0, 1, kBytes);
  Bytes x_in(kBytes), y_in(kBytes);
  RunRanks(2, [&](int rank) {
    if (rank == 0) {
      status[0] = group.at(0).Exchange({To(1, &x, 1)}, {});
      status[1] = group.at(0).Exchange({}, {To(1, &y_in, 1)});
    } else {
      status[2] = group.at(1).Exchange({To(0, &y, 1)}, {To(0, &x_in, 1)});
    }
  });
  for (const Status& one : status) EXPECT_TRUE(one.ok()) << one;
  EXPECT_EQ(x, x_in);
  EXPECT_EQ(y, y_in);
}

TEST(ExchangeTest, ASizeThatDiffersIsAnErrorOnBothSides) {
  for (const int sender : {0, 1}) {
    Ranks ranks(3);
    Group group(&ranks, "dp");
    std::array<Status, 2> status;
    RunRanks(2, [&](int rank) {
      Bytes data(rank == sender ? 400 : 800);
      const Transfer transfer = To(1 - rank, &data, 1);
      status[static_cast<size_t>(rank)] = rank == sender ? group.at(rank).Exchange({transfer}, {})
                                                         : group.at(rank).Exchange({}, {transfer});
    });
    for (int rank = 0; rank < 2; ++rank) {
      const Status& one = status[static_cast<size_t>(rank)];
      const CommError error = GetCommError(one).value_or(CommError{});
      EXPECT_EQ(error.kind, CommErrorKind::kMismatch) << one;
      EXPECT_EQ(error.culprit, 1 - rank) << one;
      EXPECT_EQ(error.bytes, rank == sender ? 400 : 800) << one;
      EXPECT_EQ(error.culprit_bytes, rank == sender ? 800 : 400) << one;
    }
  }
}

TEST(ExchangeTest, AReceiveThatNobodySendsToNamesThePeer) {
  Ranks ranks(2);
  Group group(&ranks, "dp");
  Bytes data(8);
  const Status status = group.at(0).Exchange({}, {To(1, &data, 1)}, /*timeout_s=*/0.5);
  const CommError error = GetCommError(status).value_or(CommError{});
  EXPECT_EQ(error.kind, CommErrorKind::kTimeout) << status;
  EXPECT_EQ(error.culprit, 1) << status;
}

TEST(ExchangeTest, MixesWithCollectivesOfTheGroup) {
  Ranks ranks(3);
  Group group(&ranks, "dp");
  RunRanks(3, [&](int rank) {
    std::vector<float> data(1000, 1.0f);
    for (uint64_t i = 1; i <= 10; ++i) {
      ASSERT_TRUE(group.at(rank).Run({.count = 1000}, data.data(), data.data()).ok());
      if (rank == 2) continue;
      Bytes out = MessageOf(rank, 1 - rank, i, 5000), in(5000);
      const Status status =
          group.at(rank).Exchange({To(1 - rank, &out, i)}, {To(1 - rank, &in, i)});
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(in, MessageOf(1 - rank, rank, i, 5000));
    }
    EXPECT_EQ(data[999], 59049.0f);  // 3^10
  });
}

}  // namespace
}  // namespace cria::comm

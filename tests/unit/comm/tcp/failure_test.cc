// What ranks learn when something goes wrong: who, what, on every rank.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"
#include "base/str.h"
#include "comm/net/socket.h"
#include "comm/tcp/wire.h"
#include "tests/unit/comm/tcp/ranks.h"

namespace cria::comm {
namespace {

// Runs one call a rank on the group; count and kind may differ by rank.
struct Outcome {
  std::vector<Status> status;
  std::vector<CommError> error;  // kInternal without a payload
};

Outcome RunCalls(Group* group, const std::function<Call(int rank)>& call_of) {
  Outcome outcome;
  outcome.status.resize(static_cast<size_t>(group->size()));
  RunRanks(group->size(), [&](int rank) {
    const Call call = call_of(rank);
    std::vector<float> input(static_cast<size_t>(call.count * group->size() + 1));
    std::vector<float> output(input.size());
    std::iota(input.begin(), input.end(), static_cast<float>(rank));
    outcome.status[static_cast<size_t>(rank)] =
        group->at(rank).Run(call, input.data(), output.data());
  });
  for (const Status& status : outcome.status) {
    outcome.error.push_back(GetCommError(status).value_or(CommError{}));
  }
  return outcome;
}

void WaitForFailure(const Member& member) {
  const double limit_s = RealClock()->MonotonicSeconds() + 60;
  while (!member.failure.failed() && RealClock()->MonotonicSeconds() < limit_s) {
    std::this_thread::yield();
  }
}

TEST(TcpMismatchTest, CountsThatDifferAreAnErrorOnEveryRank) {
  for (const int64_t base : {int64_t{1}, int64_t{100}, int64_t{100'000}}) {
    Ranks ranks(4);
    Group group(&ranks, "dp");
    const Outcome outcome =
        RunCalls(&group, [base](int rank) { return Call{.count = rank == 2 ? 2 * base : base}; });
    for (int rank = 0; rank < 4; ++rank) {
      const CommError& error = outcome.error[static_cast<size_t>(rank)];
      EXPECT_EQ(error.kind, CommErrorKind::kMismatch) << outcome.status[static_cast<size_t>(rank)];
      EXPECT_EQ(error.rank, rank);
      EXPECT_EQ(error.operation, "all_reduce");
      EXPECT_EQ(error.sequence, 1u);
      // Both sizes are told on every rank.
      EXPECT_EQ(std::min(error.bytes, error.culprit_bytes), rank == 2 ? 4 * base : error.bytes);
      const std::string text = Message(outcome.status[static_cast<size_t>(rank)]);
      EXPECT_NE(text.find(StrCat(base)), std::string::npos) << text;
      EXPECT_NE(text.find(StrCat(2 * base)), std::string::npos) << text;
    }
  }
}

TEST(TcpMismatchTest, AnotherOperationIsAnErrorOnEveryRank) {
  Ranks ranks(3);
  Group group(&ranks, "dp");
  const Outcome outcome = RunCalls(&group, [](int rank) {
    return Call{.kind = rank == 1 ? OpKind::kAllGather : OpKind::kAllReduce, .count = 10};
  });
  for (const CommError& error : outcome.error) EXPECT_EQ(error.kind, CommErrorKind::kMismatch);
}

TEST(TcpMismatchTest, ARankThatIsAnOperationAheadIsFound) {
  Ranks ranks(2);
  Group group(&ranks, "dp");
  const Outcome outcome = RunCalls(&group, [](int rank) {
    return Call{.count = 10, .sequence = rank == 1 ? uint64_t{6} : uint64_t{5}};
  });
  for (const CommError& error : outcome.error) EXPECT_EQ(error.kind, CommErrorKind::kMismatch);
}

TEST(TcpMismatchTest, ARootedOperationTellsTheSenderToo) {
  Ranks ranks(2);
  Group group(&ranks, "dp");
  const Outcome outcome = RunCalls(&group, [](int rank) {
    return Call{.kind = OpKind::kBroadcast, .count = rank == 0 ? 10 : 20};
  });
  for (const CommError& error : outcome.error) EXPECT_EQ(error.kind, CommErrorKind::kMismatch);
}

// pytorch/pytorch#130102: new_group with different lists.
TEST(TcpMismatchTest, GroupsOfOneNameWithOtherListsAreFoundOnBothSides) {
  Ranks ranks(3);
  Member first(ranks.domain(0), InfoOf("pair", {0, 1}, 0));
  Member second(ranks.domain(1), InfoOf("pair", {0, 1, 2}, 1));
  std::array<Status, 2> status;
  RunRanks(2, [&](int rank) {
    std::vector<float> data(100, 1.0f);
    status[static_cast<size_t>(rank)] =
        (rank == 0 ? first : second)
            .Run({.count = 100,
                  .timeout_s = 20,
                  .algorithms = {{OpKind::kAllReduce, Algorithm::kFlat}}},
                 data.data(), data.data());
  });
  for (const Status& one : status) {
    EXPECT_EQ(GetCommError(one).value_or(CommError{}).kind, CommErrorKind::kMismatch) << one;
    EXPECT_NE(Message(one).find("[0, 1]"), std::string::npos) << one;
    EXPECT_NE(Message(one).find("[0, 1, 2]"), std::string::npos) << one;
  }
}

TEST(TcpConnectionTest, AGroupThatComesLateIsWaitedFor) {
  Ranks ranks(2);
  Member early(ranks.domain(0), InfoOf("dp", {0, 1}, 0));
  std::vector<float> a(1000, 1.0f), b(1000, 2.0f);
  Status early_status;
  std::thread thread([&] { early_status = early.Run({.count = 1000}, a.data(), a.data()); });
  // The peer is connected to, but has no such group: it is made only when the hello is there.
  while (ranks.domain(0)->num_connections() == 0) std::this_thread::yield();
  Member late(ranks.domain(1), InfoOf("dp", {0, 1}, 1));
  const Status late_status = late.Run({.count = 1000}, b.data(), b.data());
  thread.join();
  ASSERT_TRUE(early_status.ok()) << early_status;
  ASSERT_TRUE(late_status.ok()) << late_status;
  EXPECT_EQ(a, std::vector<float>(1000, 3.0f));
  EXPECT_EQ(b, a);
}

// horovod#3556: a full mesh where a ring was needed.
TEST(TcpConnectionTest, OnlyThePlansEdgesAreConnected) {
  for (const auto& [algorithm, edges] :
       {std::pair(Algorithm::kRing, 5), std::pair(Algorithm::kFlat, 10)}) {
    Ranks ranks(5);
    Group group(&ranks, "dp");
    EXPECT_EQ(ranks.num_connections(), 0);
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Outcome outcome = RunCalls(&group, [&, a = algorithm](int) {
        return Call{.count = 1000, .algorithms = {{OpKind::kAllReduce, a}}};
      });
      for (const Status& status : outcome.status) ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(ranks.num_connections(), 2 * edges);  // both ends count
    }
  }
}

TEST(TcpTimeoutTest, TheChainLeadsToTheRankThatDidNotCome) {
  constexpr int kSize = 5;
  for (const int absent : {0, 3}) {
    Ranks ranks(kSize);
    Group group(&ranks, "dp");
    const Call ring{
        .count = 1000, .timeout_s = 2, .algorithms = {{OpKind::kAllReduce, Algorithm::kRing}}};
    const Outcome first = RunCalls(&group, [&](int) { return ring; });
    for (const Status& status : first.status) ASSERT_TRUE(status.ok()) << status;
    std::vector<Status> status(kSize);
    RunRanks(kSize, [&](int rank) {
      if (rank == absent) return;
      std::vector<float> data(1000, 1.0f);
      status[static_cast<size_t>(rank)] = group.at(rank).Run(ring, data.data(), data.data());
    });
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == absent) continue;
      const Status& one = status[static_cast<size_t>(rank)];
      const CommError error = GetCommError(one).value_or(CommError{});
      EXPECT_EQ(error.kind, CommErrorKind::kTimeout) << one;
      EXPECT_EQ(error.culprit, absent) << one;
      EXPECT_EQ(error.sequence, 2u) << one;
      EXPECT_NE(Message(one).find("its last was #1"), std::string::npos) << one;
    }
    // It is told as well, and blames itself.
    WaitForFailure(group.at(absent));
    EXPECT_EQ(GetCommError(group.at(absent).failure.status()).value_or(CommError{}).culprit,
              absent);
  }
}

TEST(TcpAbortTest, AFailureOnOneRankEndsTheWaitsOfAll) {
  constexpr int kSize = 6;
  Ranks ranks(kSize);
  Group group(&ranks, "dp");
  std::vector<Status> status(kSize);
  RunRanks(kSize, [&](int rank) {
    std::vector<float> data(1000, 1.0f);
    Member& member = group.at(rank);
    if (rank == 4) {
      member.failure.Fail(ToStatus({.kind = CommErrorKind::kAborted,
                                    .group = "dp",
                                    .rank = 4,
                                    .world_rank = 4,
                                    .culprit = 4,
                                    .culprit_world = 4,
                                    .reason = "out of patience"}));
    }
    status[static_cast<size_t>(rank)] =
        member.Run({.count = 1000, .timeout_s = 600}, data.data(), data.data());
  });
  for (const Status& one : status) {
    const CommError error = GetCommError(one).value_or(CommError{});
    EXPECT_EQ(error.kind, CommErrorKind::kAborted) << one;
    EXPECT_EQ(error.culprit, 4) << one;
    EXPECT_EQ(error.reason, "out of patience");
  }
}

TEST(TcpAbortTest, LargeGroupsHearOverSeveralHops) {
  constexpr int kSize = 37;
  Ranks ranks(kSize);
  Group group(&ranks, "dp");
  group.at(11).failure.Fail(
      ToStatus({.kind = CommErrorKind::kAborted, .group = "dp", .rank = 11, .reason = "enough"}));
  for (int rank = 0; rank < kSize; ++rank) {
    WaitForFailure(group.at(rank));
    EXPECT_EQ(group.at(rank).failure.status().code(), StatusCode::kCancelled) << rank;
  }
}

TEST(TcpAbortTest, AGroupOpenedAfterItsFailureIsBrokenFromTheStart) {
  Ranks ranks(2);
  Member early(ranks.domain(0), InfoOf("dp", {0, 1}, 0));
  early.failure.Fail(ToStatus({.kind = CommErrorKind::kAborted, .group = "dp", .reason = "no"}));
  Member late(ranks.domain(1), InfoOf("dp", {0, 1}, 1));
  std::vector<float> data(10);
  EXPECT_EQ(late.Run({.count = 10}, data.data(), data.data()).code(), StatusCode::kCancelled);
}

TEST(TcpLossTest, ADomainThatIsGoneIsNamedAtOnce) {
  Ranks ranks(3);
  auto group = std::make_unique<Group>(&ranks, "dp");
  const Call call{.count = 1000, .timeout_s = 600};
  const Outcome first = RunCalls(group.get(), [&](int) { return call; });
  for (const Status& status : first.status) ASSERT_TRUE(status.ok()) << status;
  group->at(1).transport.reset();
  ranks.Close(1);
  std::vector<Status> status(3);
  RunRanks(3, [&](int rank) {
    if (rank == 1) return;
    std::vector<float> data(1000, 1.0f);
    status[static_cast<size_t>(rank)] = group->at(rank).Run(call, data.data(), data.data());
  });
  for (const int rank : {0, 2}) {
    const Status& one = status[static_cast<size_t>(rank)];
    const CommError error = GetCommError(one).value_or(CommError{});
    EXPECT_EQ(error.kind, CommErrorKind::kPeerLost) << one;
    EXPECT_EQ(error.culprit, 1) << one;
  }
}

// Whoever finds the port harms nobody.
TEST(TcpHostileTest, StrangersOnThePortAreTurnedAway) {
  Ranks ranks(2);
  Group group(&ranks, "dp");
  const Rng rng(17, StreamOf("strangers"));
  std::vector<Fd> strangers;
  for (uint64_t i = 0; i < 60; ++i) {
    const auto address = *ParseAddress("127.0.0.1", ranks.domain(static_cast<int>(i % 2))->port());
    const double deadline_s = RealClock()->MonotonicSeconds() + 20;
    Fd fd = *Connect(address, deadline_s);
    std::vector<std::byte> bytes(rng.Below(i, 300));
    for (size_t b = 0; b < bytes.size(); ++b)
      bytes[b] = static_cast<std::byte>(rng.U64(1000 * i + b));
    tcp::HelloFixed hello{.purpose = tcp::Purpose::kCollective, .from_world = -5};
    hello.name_bytes = i % 3 == 0 ? 0xffffffff : 3;
    hello.num_ranks = i % 3 == 1 ? 0x7fffffff : 2;
    hello.num_streams = static_cast<uint16_t>(rng.Below(5000 + i, 70));
    if (i % 2 == 0 && bytes.size() >= sizeof(hello)) {
      std::memcpy(bytes.data(), &hello, sizeof(hello));  // right at the start only
    }
    SendExactly(fd.get(), bytes, deadline_s).IgnoreError();
    if (i % 4 != 0) strangers.push_back(std::move(fd));  // some stay, silent
  }
  const Outcome outcome = RunCalls(&group, [](int) { return Call{.count = 1000}; });
  for (const Status& status : outcome.status) EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace cria::comm

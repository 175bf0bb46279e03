// What goes wrong at the start of a job: each ends in success or in an error that names the
// culprit, on all ranks, within the deadline.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"
#include "comm/net/address.h"
#include "comm/net/free_port.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/frame.h"
#include "comm/rendezvous/messages.h"
#include "comm/rendezvous/rendezvous.h"
#include "tests/unit/comm/rendezvous/job.h"

namespace cria::comm {
namespace {

// Short, where the deadline itself is the outcome.
constexpr double kShortSeconds = 2;
// What a loaded machine may need beyond a deadline.
constexpr double kSlackSeconds = 30;

void ExpectError(const StatusOr<RankMap>& outcome, StatusCode code,
                 const std::vector<std::string>& words, const std::string& who) {
  ASSERT_FALSE(outcome.ok()) << who;
  EXPECT_EQ(outcome.status().code(), code) << who << ": " << outcome.status();
  for (const std::string& word : words) {
    EXPECT_NE(Message(outcome.status()).find(word), std::string::npos)
        << who << ": no \"" << word << "\" in: " << outcome.status();
  }
}

void ExpectAll(const std::vector<StatusOr<RankMap>>& outcomes, StatusCode code,
               const std::vector<std::string>& words, const std::vector<int>& except = {}) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (std::count(except.begin(), except.end(), static_cast<int>(rank)) > 0) continue;
    ExpectError(outcomes[rank], code, words, StrCat("rank ", rank));
  }
}

StatusOr<Fd> ConnectTo(int port, const std::string& host = "127.0.0.1") {
  const auto address = ParseAddress(host, port);
  return Connect(*address, RealClock()->MonotonicSeconds() + kSlackSeconds);
}

Status SendText(const Fd& fd, const std::string& text) {
  return SendExactly(fd.get(), std::as_bytes(std::span(text)),
                     RealClock()->MonotonicSeconds() + kSlackSeconds);
}

// The payload of the next frame.
StatusOr<std::string> ReadPayload(const Fd& fd) {
  const double deadline_s = RealClock()->MonotonicSeconds() + kSlackSeconds;
  std::string header(kFrameHeaderBytes, '\0');
  CRIA_RETURN_IF_ERROR(
      RecvExactly(fd.get(), std::as_writable_bytes(std::span(header)), deadline_s));
  CRIA_ASSIGN_OR_RETURN(const FrameHeader parsed, ParseFrameHeader(header, 1 << 20));
  std::string payload(parsed.payload_bytes, '\0');
  CRIA_RETURN_IF_ERROR(
      RecvExactly(fd.get(), std::as_writable_bytes(std::span(payload)), deadline_s));
  return payload;
}

// A rank that comes, takes its place in the tree, and dies there.
void ComeAndDie(int rank, int world_size, int port) {
  auto master = ConnectTo(port);
  ASSERT_TRUE(master.ok()) << master.status();
  const Hello hello = {.world_size = world_size,
                       .rank = rank,
                       .instance = 99,
                       .job = {},
                       .address = "127.0.0.1",
                       .port = 1,
                       .pid = 4242,
                       .time_left_ms = 60000};
  ASSERT_TRUE(SendText(*master, *MakeFrame(FrameKind::kHello, Encode(hello))).ok());
  const auto payload = ReadPayload(*master);
  ASSERT_TRUE(payload.ok()) << payload.status();
  const auto place = DecodePlace(*payload);
  ASSERT_TRUE(place.ok()) << place.status();
  if (place->parent_port == 0) return;  // the master's own child: the connection ends here
  const auto parent = ConnectTo(place->parent_port, place->parent_address);
  ASSERT_TRUE(parent.ok()) << parent.status();
  const Join join = {.session = place->session, .position = place->position, .rank = rank};
  ASSERT_TRUE(SendText(*parent, *MakeFrame(FrameKind::kJoin, Encode(join))).ok());
}

TEST(RendezvousFaultsTest, WaitsForSlowStarters) {
  constexpr int kRanks = 64;
  Tally begun;
  ExpectAllHaveTheMap(RunJob({.world_size = kRanks,
                              .rendezvous = {.timeout_s = 120, .degree = 4},
                              .before = [&begun](int rank) {
                                if (rank == 17) {
                                  EXPECT_TRUE(begun.WaitFor(kRanks - 1));
                                  begun.LetPass(0.4);
                                } else {
                                  begun.Add();
                                }
                                return true;
                              }}));
}

TEST(RendezvousFaultsTest, WaitsForAMasterThatStartsLate) {
  Tally begun;
  ExpectAllHaveTheMap(RunJob({.world_size = 6, .before = [&begun](int rank) {
                                if (rank == 0) {
                                  EXPECT_TRUE(begun.WaitFor(5));
                                  begun.LetPass(0.4);
                                }
                                begun.Add();
                                return true;
                              }}));
}

TEST(RendezvousFaultsTest, NamesTheRanksThatDidNotCome) {
  const double start_s = RealClock()->MonotonicSeconds();
  const auto outcomes = RunJob({.world_size = 14,
                                .rendezvous = {.timeout_s = kShortSeconds, .degree = 2},
                                .before = [](int rank) { return rank != 2 && rank != 11; }});
  ExpectAll(outcomes, StatusCode::kDeadlineExceeded, {"2 of 14 ranks have not come: 2, 11"},
            /*except=*/{2, 11});
  EXPECT_LT(RealClock()->MonotonicSeconds() - start_s, kShortSeconds + kSlackSeconds);
}

TEST(RendezvousFaultsTest, NamesTheFirstOfManyThatDidNotCome) {
  const auto outcomes =
      RunJob({.world_size = 40, .rendezvous = {.timeout_s = kShortSeconds}, .before = [](int rank) {
                return rank < 4;
              }});
  for (size_t rank = 0; rank < 4; ++rank) {
    ExpectError(outcomes[rank], StatusCode::kDeadlineExceeded,
                {"36 of 40 ranks have not come: 4, 5, 6, 7, 8, 9, 10, 11 and 28 more"},
                StrCat("rank ", rank));
  }
}

TEST(RendezvousFaultsTest, SaysThatTheMasterCannotBeReached) {
  const auto outcomes =
      RunJob({.world_size = 3, .rendezvous = {.timeout_s = 1}, .before = [](int rank) {
                return rank != 0;
              }});
  ExpectAll(outcomes, StatusCode::kDeadlineExceeded, {"cannot reach the master at 127.0.0.1:"},
            /*except=*/{0});
}

TEST(RendezvousFaultsTest, TwoRanksWithOneNumberAreAnErrorForAll) {
  for (const int degree : {2, 16}) {
    const auto outcomes = RunJob({.world_size = 9,
                                  .rendezvous = {.timeout_s = 60, .degree = degree},
                                  .change = [](int rank, RankEnvironment* environment) {
                                    if (rank == 5) environment->rank = 7;
                                  }});
    ExpectAll(outcomes, StatusCode::kInvalidArgument,
              {"two processes say that they are rank 7 of 9", "127.0.0.1"});
  }
}

TEST(RendezvousFaultsTest, AnotherWorldSizeIsAnErrorForAll) {
  const auto outcomes = RunJob({.world_size = 7,
                                .rendezvous = {.timeout_s = 60, .degree = 2},
                                .change = [](int rank, RankEnvironment* environment) {
                                  if (rank == 4) environment->world_size = 8;
                                }});
  ExpectAll(outcomes, StatusCode::kInvalidArgument,
            {"rank 4 (127.0.0.1, process", "with world size 8, the others with 7"});
}

TEST(RendezvousFaultsTest, ARankOfAnotherJobIsTurnedAwayByName) {
  const auto outcomes = RunJob({.world_size = 3,
                                .rendezvous = {.timeout_s = kShortSeconds},
                                .change = [](int rank, RankEnvironment* environment) {
                                  environment->job = rank == 2 ? "blue" : "green";
                                }});
  ExpectError(outcomes[2], StatusCode::kFailedPrecondition,
              {"rank 2", "of job \"blue\"", "serves job \"green\"", "MASTER_PORT"}, "rank 2");
  ExpectAll(outcomes, StatusCode::kDeadlineExceeded, {"1 of 3 ranks has not come: rank 2"},
            /*except=*/{2});
}

TEST(RendezvousFaultsTest, ARankOfAnotherJobHarmsNobody) {
  const int port = FreePort().value();
  Tally turned_away;
  std::thread stranger([port, &turned_away] {
    RankEnvironment environment = EnvironmentOf(1, 2, port);
    environment.job = "blue";
    ExpectError(GatherRankMap(environment, RecordOf(1), {.timeout_s = 60}),
                StatusCode::kFailedPrecondition, {"of job \"blue\""}, "stranger");
    turned_away.Add();
  });
  ExpectAllHaveTheMap(RunJob({.world_size = 5, .port = port, .before = [&](int rank) {
                                return rank != 3 || turned_away.WaitFor(1);
                              }}));
  stranger.join();
}

TEST(RendezvousFaultsTest, ARankThatDiesInTheTreeIsNamedToAll) {
  for (const int degree : {2, 3, 16}) {
    constexpr int kRanks = 12;
    const int port = FreePort().value();
    const auto outcomes = RunJob({.world_size = kRanks,
                                  .rendezvous = {.timeout_s = 60, .degree = degree},
                                  .port = port,
                                  .before = [port](int rank) {
                                    if (rank == 6) ComeAndDie(6, kRanks, port);
                                    return rank != 6;
                                  }});
    ExpectAll(outcomes, StatusCode::kUnavailable, {"rank 6", "was lost"}, /*except=*/{6});
  }
}

TEST(RendezvousFaultsTest, GarbageHarmsNobody) {
  const int port = FreePort().value();
  Tally begun;
  std::vector<Fd> held;  // clients that say nothing, or a little, and stay
  const auto outcomes =
      RunJob({.world_size = 5, .port = port, .before = [&](int rank) {
                if (rank != 3) return true;
                const Rng rng(5, StreamOf("garbage"));
                for (uint64_t i = 0; i < 60; ++i) {
                  auto fd = ConnectTo(port);
                  EXPECT_TRUE(fd.ok()) << fd.status();
                  if (!fd.ok()) return true;
                  std::string text;
                  if (i % 4 == 0) text = "GET / HTTP/1.1\r\nHost: master\r\n\r\n";
                  if (i % 4 == 1) {
                    for (uint64_t b = 0; b < 300; ++b)
                      text += static_cast<char>(rng.U64(i * 300 + b));
                  }
                  if (i % 4 == 2)
                    text = MakeFrame(FrameKind::kHello, "not a hello")->substr(0, 10 + i % 20);
                  if (i % 4 == 3) text = *MakeFrame(FrameKind::kMap, "a map, from a stranger");
                  EXPECT_TRUE(SendText(*fd, text).ok());
                  if (i % 3 != 0) held.push_back(*std::move(fd));
                }
                return true;
              }});
  ExpectAllHaveTheMap(outcomes);
}

TEST(RendezvousFaultsTest, WhoSaysNothingIsDropped) {
  const MasterThread master({.hello_timeout_s = 0.2});
  const auto silent = ConnectTo(master.port());
  const auto half = ConnectTo(master.port());
  ASSERT_TRUE(silent.ok() && half.ok());
  ASSERT_TRUE(SendText(*half, MakeFrame(FrameKind::kHello, "half")->substr(0, 20)).ok());
  for (const auto* client : {&silent, &half}) {
    const Status status = ReadPayload(**client).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  }
}

TEST(RendezvousFaultsTest, FindsAMasterThatIsRestartedBeforeAllHaveCome) {
  for (const int degree : {2, 16}) {
    constexpr int kRanks = 8;
    auto master = std::make_unique<MasterThread>(RendezvousServerOptions{.degree = degree});
    const int port = master->port();
    const auto outcomes = RunJob({.world_size = kRanks, .port = port, .before = [&](int rank) {
                                    if (rank != 5) return true;
                                    // All others have their places, and are in the tree or on their
                                    // way to it.
                                    EXPECT_TRUE(master->WaitForMessages(kRanks - 1));
                                    master = nullptr;
                                    master = std::make_unique<MasterThread>(
                                        RendezvousServerOptions{.port = port, .degree = degree});
                                    return true;
                                  }});
    ExpectAllHaveTheMap(outcomes);
  }
}

TEST(RendezvousFaultsTest, AMasterThatDiesIsAnErrorLongBeforeTheDeadline) {
  auto master = std::make_unique<MasterThread>(RendezvousServerOptions{.degree = 2});
  const int port = master->port();
  const double start_s = RealClock()->MonotonicSeconds();
  const auto outcomes = RunJob({.world_size = 8,
                                .rendezvous = {.timeout_s = 300, .master_restart_s = 0.5},
                                .port = port,
                                .before = [&master](int rank) {
                                  if (rank != 5) return true;
                                  EXPECT_TRUE(master->WaitForMessages(7));
                                  master = nullptr;
                                  return false;
                                }});
  ExpectAll(outcomes, StatusCode::kUnavailable, {"answered before and is gone"}, /*except=*/{5});
  EXPECT_LT(RealClock()->MonotonicSeconds() - start_s, 60);
}

TEST(RendezvousFaultsTest, OneMasterServesManyJobsAtOnce) {
  const MasterThread master({.degree = 2});
  std::vector<std::thread> jobs;
  for (int job = 0; job < 4; ++job) {
    jobs.emplace_back([&master, job] {
      ExpectAllHaveTheMap(RunJob({.world_size = 3 + job,
                                  .port = master.port(),
                                  .change = [job](int, RankEnvironment* environment) {
                                    environment->job = StrCat("job ", job);
                                  }}));
    });
  }
  for (std::thread& job : jobs) job.join();
}

TEST(RendezvousFaultsTest, OneMasterServesAJobAgain) {
  const MasterThread master({});
  for (int run = 0; run < 3; ++run) {
    ExpectAllHaveTheMap(RunJob({.world_size = 4 + run, .port = master.port()}));
  }
}

// pytorch/pytorch#129261: thousands of clients overflow the backlog and are reset.
TEST(RendezvousFaultsTest, AShortBacklogCostsRetriesNotTheJob) {
  const MasterThread master({.backlog = 2});
  ExpectAllHaveTheMap(
      RunJob({.world_size = 150, .rendezvous = {.timeout_s = 300}, .port = master.port()}));
}

TEST(RendezvousFaultsTest, MeetsOverIpv6) {
  if (!Listen(*ParseAddress("::1", 0), 1).ok()) GTEST_SKIP() << "this machine has no IPv6 loopback";
  const int port = FreePort().value();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 6; ++rank) {
    ranks.emplace_back([rank, port] {
      RankEnvironment environment = EnvironmentOf(rank, 6, port);
      environment.master_address = "::1";
      RankInfo mine = RecordOf(rank);
      // Without an address the master says where a rank is seen.
      mine.address = rank % 2 == 0 ? "::1" : "";
      const auto map = GatherRankMap(environment, mine, {.timeout_s = 60, .degree = 2});
      ASSERT_TRUE(map.ok()) << map.status();
      EXPECT_EQ((*map)[4].address, "::1");
      EXPECT_EQ((*map)[5].port, RecordOf(5).port);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(RendezvousFaultsTest, RefusesArgumentsThatMakeNoSense) {
  const auto code = [](const RankEnvironment& environment, const RankInfo& mine, double timeout_s) {
    return GatherRankMap(environment, mine, {.timeout_s = timeout_s}).status().code();
  };
  EXPECT_EQ(code(EnvironmentOf(2, 2, 80), {}, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(EnvironmentOf(-1, 2, 80), {}, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(EnvironmentOf(0, 2, 0), {}, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(EnvironmentOf(0, 2, 80), {}, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(EnvironmentOf(0, 2, 80), {.host = std::string(1000, 'h')}, 1),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cria::comm

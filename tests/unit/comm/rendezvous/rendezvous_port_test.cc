// Who holds the master's port when the ranks come: another program, an earlier job that has left,
// or one that is just leaving.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/net/address.h"
#include "comm/net/free_port.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/rendezvous.h"
#include "tests/unit/comm/rendezvous/job.h"

namespace cria::comm {
namespace {

constexpr double kLookSeconds = 0.01;
// What a loaded machine may need.
constexpr double kSlackSeconds = 60;

double In(double seconds) { return RealClock()->MonotonicSeconds() + seconds; }

// At a port that nobody gets by chance once it is free again.
StatusOr<Fd> ListenAtFreePort() {
  CRIA_ASSIGN_OR_RETURN(const int port, FreePort());
  CRIA_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress("127.0.0.1", port));
  return Listen(address, 64);
}

enum class Manner {
  kTakesNobody,  // listens, and does not even take connections
  kSaysNothing,
  kGreets,  // shorter than a header of ours, and waits, as SSH does
  kAnswersItsOwnWay,
  kHangsUp,
};

// Another program that holds a port, on a thread.
class Stranger {
 public:
  explicit Stranger(Manner manner) : manner_(manner) {
    auto listener = ListenAtFreePort();
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    port_ = LocalAddress(listener_.get())->port();
    thread_ = std::thread([this] { Serve(); });
  }
  ~Stranger() { Leave(); }

  int port() const { return port_; }
  // Waits until somebody has called.
  bool WaitForCaller() { return callers_.WaitFor(1); }
  // The port is free afterwards.
  void Leave() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
    held_.clear();
    listener_.Reset();
  }

 private:
  void Serve() {
    while (!stop_.load()) {
      if (manner_ == Manner::kTakesNobody) {
        if (WaitFor(listener_.get(), POLLIN, In(kLookSeconds))) callers_.Add();
        continue;
      }
      auto caller = Accept(listener_.get(), In(kLookSeconds));
      if (!caller.ok()) continue;
      std::string text;
      if (manner_ == Manner::kGreets) text = "SSH-2.0-OpenSSH_9.2\r\n";
      if (manner_ == Manner::kAnswersItsOwnWay) text = "HTTP/1.1 400 Bad Request\r\n\r\n<html>";
      EXPECT_TRUE(SendExactly(caller->get(), std::as_bytes(std::span(text)), In(1)).ok());
      if (manner_ != Manner::kHangsUp) held_.push_back(*std::move(caller));
      callers_.Add();
    }
  }

  const Manner manner_;
  Fd listener_;
  int port_ = 0;
  std::vector<Fd> held_;
  Tally callers_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void ExpectError(const StatusOr<RankMap>& outcome, const std::vector<std::string>& words,
                 const std::string& who) {
  ASSERT_FALSE(outcome.ok()) << who;
  EXPECT_EQ(outcome.status().code(), StatusCode::kFailedPrecondition)
      << who << ": " << outcome.status();
  for (const std::string& word : words) {
    EXPECT_NE(Message(outcome.status()).find(word), std::string::npos)
        << who << ": no \"" << word << "\" in: " << outcome.status();
  }
}

class StrangerTest : public testing::TestWithParam<std::pair<Manner, const char*>> {};

TEST_P(StrangerTest, IsFoundOutByAllRanksLongBeforeTheDeadline) {
  const auto [manner, what] = GetParam();
  const Stranger stranger(manner);
  const double start_s = RealClock()->MonotonicSeconds();
  const auto outcomes = RunJob({.world_size = 4,
                                .rendezvous = {.timeout_s = 300, .stranger_s = 0.3},
                                .port = stranger.port()});
  EXPECT_LT(RealClock()->MonotonicSeconds() - start_s, kSlackSeconds);
  const std::string port = StrCat(":", stranger.port());
  ExpectError(
      outcomes[0],
      {"rank 0 cannot serve: bind to 0.0.0.0" + port, "Address already in use", "is not Cria's"},
      "rank 0");
  for (size_t rank = 1; rank < outcomes.size(); ++rank) {
    ExpectError(outcomes[rank],
                {"what listens at 127.0.0.1" + port + " is not Cria's rendezvous", what},
                StrCat("rank ", rank));
  }
}

INSTANTIATE_TEST_SUITE_P(Manners, StrangerTest,
                         testing::Values(std::pair(Manner::kTakesNobody, "does not answer"),
                                         std::pair(Manner::kSaysNothing, "does not answer"),
                                         std::pair(Manner::kGreets, "no message of the rendezvous"),
                                         std::pair(Manner::kAnswersItsOwnWay,
                                                   "no message of the rendezvous"),
                                         std::pair(Manner::kHangsUp, "")));

TEST(RendezvousPortTest, RankZeroServesWhenAProgramThatWasThereLeaves) {
  for (const Manner manner : {Manner::kTakesNobody, Manner::kHangsUp}) {
    Stranger stranger(manner);
    ExpectAllHaveTheMap(RunJob({.world_size = 3,
                                .rendezvous = {.timeout_s = 120, .stranger_s = kSlackSeconds},
                                .port = stranger.port(),
                                .before = [&stranger](int rank) {
                                  if (rank != 2) return true;
                                  EXPECT_TRUE(stranger.WaitForCaller());
                                  stranger.Leave();
                                  return true;
                                }}));
  }
}

// A port that no one listens at, but that a connection of this machine has.
TEST(RendezvousPortTest, SaysThatThePortIsInUseAlsoWhereNobodyListens) {
  const auto listener = Listen(*ParseAddress("127.0.0.1", 0), 16);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto connection = Connect(*LocalAddress(listener->get()), In(kSlackSeconds));
  ASSERT_TRUE(connection.ok()) << connection.status();
  const int port = LocalAddress(connection->get())->port();
  ExpectError(
      GatherRankMap(EnvironmentOf(0, 2, port), RecordOf(0), {.timeout_s = 300, .stranger_s = 0.3}),
      {StrCat("bind to 0.0.0.0:", port, ": Address already in use")}, "rank 0");
}

// The connections of an earlier job of this name, which its master closed first.
TEST(RendezvousPortTest, APortInTimeWaitIsFree) {
  int port = 0;
  {
    const auto listener = ListenAtFreePort();
    ASSERT_TRUE(listener.ok()) << listener.status();
    const SocketAddress address = *LocalAddress(listener->get());
    port = address.port();
    auto client = Connect(address, In(kSlackSeconds));
    ASSERT_TRUE(client.ok()) << client.status();
    auto server = Accept(listener->get(), In(kSlackSeconds));
    ASSERT_TRUE(server.ok()) << server.status();
    server->Reset();
    std::array<std::byte, 1> end = {};
    EXPECT_EQ(RecvExactly(client->get(), end, In(kSlackSeconds)).code(), StatusCode::kUnavailable);
  }
  const Fd plain(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address = *ParseAddress("127.0.0.1", port);
  if (bind(plain.get(), address.get(), address.length) == 0) {
    GTEST_SKIP() << "the kernel has as many connections in TIME_WAIT as it keeps";
  }
  ExpectAllHaveTheMap(RunJob({.world_size = 3, .port = port}));
}

}  // namespace
}  // namespace cria::comm

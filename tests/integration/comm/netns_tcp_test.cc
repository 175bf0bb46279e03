// The TCP transport between hosts: network namespaces on a bridge, a process on each.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/str.h"
#include "comm/net/interfaces.h"
#include "tests/integration/comm/netns_hosts.h"
#include "tests/unit/comm/tcp/ranks.h"

namespace cria::comm {
namespace {

constexpr int kHostsMax = 4;

struct Board {
  std::atomic<int> port[kHostsMax];
  std::atomic<int> num_done[kHostsMax];
  std::atomic<int> stop;
  struct Outcome {
    std::atomic<int> ready;
    int kind;  // -1: no error
    int culprit;
    double seconds;
    char text[1024];
  } outcome[kHostsMax];
};

struct Job {
  int num_hosts;
  int64_t count;
  double timeout_s;
};

Status AllReduceUntilTheEnd(Board* board, const Job& job, int rank, Member* member,
                            double* started_s) {
  std::vector<float> input(static_cast<size_t>(job.count)), output(input.size());
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>((rank + 1) * (i % 97));
  const int factor = job.num_hosts * (job.num_hosts + 1) / 2;
  // Rank 0's word on when to stop travels with the data, lest somebody waits for a rank that left.
  for (float stop = 0; stop == 0;) {
    input[0] = rank == 0 ? static_cast<float>(board->stop.load()) : 0;
    *started_s = RealClock()->MonotonicSeconds();
    CRIA_RETURN_IF_ERROR(member->Run({.count = job.count,
                                      .timeout_s = job.timeout_s,
                                      .algorithms = {{OpKind::kAllReduce, Algorithm::kRing}}},
                                     input.data(), output.data()));
    for (size_t i = 1; i < output.size(); ++i) {
      if (output[i] != static_cast<float>(factor * (i % 97))) {
        return DataLossError("element ", i, " is ", output[i]);
      }
    }
    stop = output[0];
    board->num_done[rank].fetch_add(1);
  }
  return OkStatus();
}

// A rank's process, on its host.
void RunRank(Board* board, const NetnsHosts& hosts, const Job& job, int rank) {
  CRIA_CHECK(hosts.Enter(rank).ok());
  // As a job would find it: the way to the master.
  const auto address = ChooseAddress("", NetnsHosts::Address(0), 1);
  CRIA_CHECK(address.ok() && *address == NetnsHosts::Address(rank), Message(address.status()));
  CRIA_CHECK(*ChooseAddress(NetnsHosts::Cidr(), "", 0) == *address);
  auto domain = TcpDomain::Create({.address = *address});
  CRIA_CHECK(domain.ok(), Message(domain.status()));
  board->port[rank].store((*domain)->port());
  auto map = std::make_shared<RankMap>();
  std::vector<int> ranks;
  for (int peer = 0; peer < job.num_hosts; ++peer) {
    while (board->port[peer].load() == 0) std::this_thread::yield();
    RankInfo info;
    info.host = StrCat("host ", peer);
    info.address = NetnsHosts::Address(peer);
    info.port = board->port[peer].load();
    map->push_back(info);
    ranks.push_back(peer);
  }
  (*domain)->Start(rank, map);
  Member member(domain->get(), InfoOf("dp", ranks, rank));
  double started_s = 0;
  const Status status = AllReduceUntilTheEnd(board, job, rank, &member, &started_s);
  Board::Outcome& outcome = board->outcome[rank];
  outcome.seconds = RealClock()->MonotonicSeconds() - started_s;
  const CommError error = GetCommError(status).value_or(CommError{});
  outcome.kind = status.ok() ? -1 : static_cast<int>(error.kind);
  outcome.culprit = error.culprit;
  std::strncpy(outcome.text, Message(status).c_str(), sizeof(outcome.text) - 1);
  outcome.ready.store(1);
}

class NetnsTcpTest : public ::testing::TestWithParam<int> {
 protected:
  void Start(const Job& job) {
    job_ = job;
    auto hosts = NetnsHosts::Create(job.num_hosts);
    if (!hosts.ok()) {
      skipped_ = Message(hosts.status());
      return;
    }
    hosts_ = *std::move(hosts);
    void* memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CRIA_CHECK(memory != MAP_FAILED);
    board_ = new (memory) Board{};
    for (int rank = 0; rank < job.num_hosts; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        RunRank(board_, *hosts_, job_, rank);
        _exit(0);
      }
      children_.push_back(child);
    }
  }
  void WaitForOperations(int count) {
    for (int rank = 0; rank < job_.num_hosts; ++rank) {
      while (board_->num_done[rank].load() < count && board_->outcome[rank].ready.load() == 0) {
        std::this_thread::yield();
      }
    }
  }
  const Board::Outcome& OutcomeOf(int rank) {
    while (board_->outcome[rank].ready.load() == 0) std::this_thread::yield();
    return board_->outcome[rank];
  }
  ~NetnsTcpTest() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    if (board_ != nullptr) munmap(board_, sizeof(Board));
  }

  Job job_ = {};
  std::string skipped_;
  std::unique_ptr<NetnsHosts> hosts_;
  Board* board_ = nullptr;
  std::vector<pid_t> children_;
};

TEST_P(NetnsTcpTest, AllReducesBetweenHosts) {
  Start({.num_hosts = GetParam(), .count = 300'000, .timeout_s = 60});
  if (!skipped_.empty()) GTEST_SKIP() << skipped_;
  WaitForOperations(3);
  board_->stop.store(1);
  for (int rank = 0; rank < job_.num_hosts; ++rank) {
    EXPECT_EQ(OutcomeOf(rank).kind, -1) << OutcomeOf(rank).text;
    EXPECT_GE(board_->num_done[rank].load(), 3);
  }
}

// No FIN, no reset: only silence.
TEST_P(NetnsTcpTest, AHostWhoseLinkGoesDownIsNamedAtTheDeadline) {
  constexpr double kTimeoutSeconds = 3;
  Start({.num_hosts = GetParam(), .count = 300'000, .timeout_s = kTimeoutSeconds});
  if (!skipped_.empty()) GTEST_SKIP() << skipped_;
  WaitForOperations(3);
  const int victim = job_.num_hosts - 2;
  ASSERT_TRUE(hosts_->SetLink(victim, /*up=*/false).ok());
  for (int rank = 0; rank < job_.num_hosts; ++rank) {
    const auto& outcome = OutcomeOf(rank);
    EXPECT_GE(outcome.kind, 0);
    if (rank == victim) continue;  // it cannot know that it is the one
    EXPECT_EQ(outcome.kind, static_cast<int>(CommErrorKind::kTimeout)) << outcome.text;
    EXPECT_EQ(outcome.culprit, victim) << outcome.text;
    EXPECT_LT(outcome.seconds, 10 * kTimeoutSeconds) << outcome.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, NetnsTcpTest, ::testing::Values(2, 4));

}  // namespace
}  // namespace cria::comm

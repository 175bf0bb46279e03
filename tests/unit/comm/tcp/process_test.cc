// Ranks as processes that are killed and stopped: every survivor names the culprit.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/str.h"
#include "tests/unit/comm/tcp/ranks.h"

namespace cria::comm {
namespace {

constexpr int kSize = 4;

// What the processes share.
struct Board {
  std::atomic<int> port[kSize];
  std::atomic<int> num_done[kSize];  // operations
  struct Outcome {
    std::atomic<int> ready;
    int kind;
    int culprit;
    double seconds;
    char text[1024];
  } outcome[kSize];
};

double Now() { return RealClock()->MonotonicSeconds(); }

// Runs all-reduces until one fails.
void RunChild(Board* board, int rank, double timeout_s, Algorithm algorithm) {
  auto domain = TcpDomain::Create({.address = "127.0.0.1"});
  CRIA_CHECK(domain.ok(), Message(domain.status()));
  board->port[rank].store((*domain)->port());
  auto map = std::make_shared<RankMap>();
  for (int peer = 0; peer < kSize; ++peer) {
    while (board->port[peer].load() == 0) std::this_thread::yield();
    RankInfo info;
    info.host = "here";
    info.address = "127.0.0.1";
    info.port = board->port[peer].load();
    map->push_back(info);
  }
  (*domain)->Start(rank, map);
  Member member(domain->get(), InfoOf("dp", {0, 1, 2, 3}, rank));
  std::vector<float> data(20'000, 1.0f);
  Status status;
  double start_s = 0;
  while (status.ok()) {
    start_s = Now();
    status = member.Run({.op = ReduceOp::kMax,
                         .count = static_cast<int64_t>(data.size()),
                         .timeout_s = timeout_s,
                         .algorithms = {{OpKind::kAllReduce, algorithm}}},
                        data.data(), data.data());
    board->num_done[rank].fetch_add(1);
  }
  const CommError error = GetCommError(status).value_or(CommError{});
  Board::Outcome& outcome = board->outcome[rank];
  outcome.kind = static_cast<int>(error.kind);
  outcome.culprit = error.culprit;
  outcome.seconds = Now() - start_s;
  std::strncpy(outcome.text, Message(status).c_str(), sizeof(outcome.text) - 1);
  outcome.ready.store(1);
}

class Job {
 public:
  Job(double timeout_s, Algorithm algorithm) {
    void* memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CRIA_CHECK(memory != MAP_FAILED);
    board_ = new (memory) Board{};
    for (int rank = 0; rank < kSize; ++rank) {
      children_[rank] = fork();
      if (children_[rank] != 0) continue;
      RunChild(board_, rank, timeout_s, algorithm);
      _exit(0);
    }
  }
  ~Job() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    munmap(board_, sizeof(Board));
  }

  // All ranks have done this many operations.
  void WaitForOperations(int count) {
    for (const auto& done : board_->num_done) {
      while (done.load() < count) std::this_thread::yield();
    }
  }
  void Signal(int rank, int signal) { kill(children_[rank], signal); }
  const Board::Outcome& OutcomeOf(int rank) {
    while (board_->outcome[rank].ready.load() == 0) std::this_thread::yield();
    return board_->outcome[rank];
  }

 private:
  Board* board_ = nullptr;
  pid_t children_[kSize] = {};
};

TEST(TcpProcessTest, AKilledRankIsNamedByAllLongBeforeTheDeadline) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kFlat}) {
    for (int victim = 0; victim < kSize; ++victim) {
      Job job(/*timeout_s=*/600, algorithm);
      job.WaitForOperations(3);
      job.Signal(victim, SIGKILL);
      for (int rank = 0; rank < kSize; ++rank) {
        if (rank == victim) continue;
        const auto& outcome = job.OutcomeOf(rank);
        EXPECT_EQ(outcome.kind, static_cast<int>(CommErrorKind::kPeerLost)) << outcome.text;
        EXPECT_EQ(outcome.culprit, victim) << outcome.text;
      }
    }
  }
}

TEST(TcpProcessTest, AStoppedRankIsNamedByAllAtTheDeadline) {
  for (int victim = 0; victim < kSize; ++victim) {
    Job job(/*timeout_s=*/2, victim % 2 == 0 ? Algorithm::kRing : Algorithm::kFlat);
    job.WaitForOperations(3);
    job.Signal(victim, SIGSTOP);
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == victim) continue;
      const auto& outcome = job.OutcomeOf(rank);
      EXPECT_EQ(outcome.kind, static_cast<int>(CommErrorKind::kTimeout)) << outcome.text;
      EXPECT_EQ(outcome.culprit, victim) << outcome.text;
      EXPECT_NE(std::strstr(outcome.text, "has not answered"), nullptr) << outcome.text;
    }
  }
}

// pytorch/gloo#327: too many open files came as anything but that.
TEST(TcpProcessTest, NamesTheLimitOfDescriptors) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    Status status;
    std::vector<std::unique_ptr<TcpDomain>> domains;
    while (status.ok() && domains.size() < 100) {
      auto domain = TcpDomain::Create({.address = "127.0.0.1"});
      status = domain.status();
      if (status.ok()) domains.push_back(*std::move(domain));
    }
    const bool typed = status.code() == StatusCode::kResourceExhausted &&
                       Message(status).find("all its 64 file descriptors") != std::string::npos;
    _exit(typed ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The same where a link needs a descriptor that is not there any more.
TEST(TcpProcessTest, NamesTheLimitWhenALinkCannotOpen) {
  const pid_t child = fork();
  if (child == 0) {
    Ranks ranks(2);
    Group group(&ranks, "dp");
    int last = dup(0);
    const rlimit limit = {.rlim_cur = static_cast<rlim_t>(last), .rlim_max = 64};
    close(last);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    Status status[2];
    RunRanks(2, [&](int rank) {
      float data[4] = {1, 2, 3, 4};
      status[rank] = group.at(rank).Run({.count = 4, .timeout_s = 2}, data, data);
    });
    // Rank 0 connects. Rank 1 cannot be told without a descriptor, but has its deadline.
    const bool typed = status[0].code() == StatusCode::kResourceExhausted &&
                       Message(status[0]).find("file descriptors open") != std::string::npos;
    _exit(typed && !status[1].ok() ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace cria::comm

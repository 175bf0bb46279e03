#include "tests/unit/comm/rendezvous/job.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "comm/net/free_port.h"

namespace cria::comm {
namespace {

constexpr double kPatienceSeconds = 60;

}  // namespace

RankInfo RecordOf(int rank) {
  return {.host = StrCat("node", rank / 4, "/boot", rank / 4 * 7919),
          .address = "127.0.0.1",
          .port = 20000 + rank * 3,
          .shm_socket = StrCat("cria-shm-", 1000 + rank, "-", rank * 31 % 17),
          .pid = 1000 + rank};
}

RankEnvironment EnvironmentOf(int rank, int world_size, int port) {
  return {.rank = rank,
          .world_size = world_size,
          .local_rank = rank,
          .local_size = world_size,
          .master_address = "127.0.0.1",
          .master_port = port,
          .source = "torchrun",
          .job = {}};
}

std::vector<StatusOr<RankMap>> RunJob(const JobOptions& options) {
  const int port = options.port != 0 ? options.port : FreePort().value();
  std::vector<StatusOr<RankMap>> outcomes(static_cast<size_t>(options.world_size),
                                          NotFoundError("never started"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.world_size; ++rank) {
    threads.emplace_back([&options, &outcomes, rank, port] {
      if (options.before && !options.before(rank)) return;
      RankEnvironment environment = EnvironmentOf(rank, options.world_size, port);
      if (options.change) options.change(rank, &environment);
      outcomes[static_cast<size_t>(rank)] =
          GatherRankMap(environment, RecordOf(rank), options.rendezvous);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void Tally::Add() {
  const MutexLock lock(&mu_);
  ++count_;
  changed_.NotifyAll();
}

bool Tally::WaitFor(int count) {
  const double end_s = RealClock()->MonotonicSeconds() + kPatienceSeconds;
  const MutexLock lock(&mu_);
  while (count_ < count && RealClock()->MonotonicSeconds() < end_s) {
    changed_.WaitFor(&mu_, kPatienceSeconds);
  }
  return count_ >= count;
}

void Tally::LetPass(double seconds) {
  const double end_s = RealClock()->MonotonicSeconds() + seconds;
  const MutexLock lock(&mu_);
  for (double now_s = 0; (now_s = RealClock()->MonotonicSeconds()) < end_s;) {
    changed_.WaitFor(&mu_, end_s - now_s);
  }
}

MasterThread::MasterThread(const RendezvousServerOptions& options) {
  auto loop = EventLoop::Create();
  EXPECT_TRUE(loop.ok()) << loop.status();
  loop_ = *std::move(loop);
  auto server = RendezvousServer::Create(loop_.get(), options);
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  port_ = server_->port();
  thread_ = std::thread([this] {
    while (!stop_.load()) {
      EXPECT_TRUE(loop_->RunOnce(loop_->now_s() + 0.005).ok());
      num_messages_.store(server_->counters().messages);
    }
  });
}

MasterThread::~MasterThread() {
  stop_.store(true);
  thread_.join();
}

bool MasterThread::WaitForMessages(int64_t count) {
  const double end_s = RealClock()->MonotonicSeconds() + kPatienceSeconds;
  Tally tally;
  while (num_messages_.load() < count && RealClock()->MonotonicSeconds() < end_s) {
    tally.LetPass(0.005);
  }
  return num_messages_.load() >= count;
}

void ExpectAllHaveTheMap(const std::vector<StatusOr<RankMap>>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    ASSERT_TRUE(outcomes[rank].ok()) << "rank " << rank << ": " << outcomes[rank].status();
    const RankMap& map = *outcomes[rank];
    ASSERT_EQ(map.size(), outcomes.size()) << "rank " << rank;
    for (size_t other = 0; other < map.size(); ++other) {
      const RankInfo expected = RecordOf(static_cast<int>(other));
      ASSERT_EQ(map[other].host, expected.host) << "rank " << rank << " about " << other;
      ASSERT_EQ(map[other].address, expected.address) << "rank " << rank << " about " << other;
      ASSERT_EQ(map[other].port, expected.port) << "rank " << rank << " about " << other;
      ASSERT_EQ(map[other].shm_socket, expected.shm_socket) << "rank " << rank;
      ASSERT_EQ(map[other].pid, expected.pid) << "rank " << rank << " about " << other;
    }
  }
}

}  // namespace cria::comm

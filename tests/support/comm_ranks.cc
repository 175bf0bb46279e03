#include "tests/support/comm_ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/str.h"
#include "comm/net/free_port.h"

namespace cria {
namespace {

comm::WorldOptions OptionsOf(const RankOptions& options, int rank, int port) {
  comm::WorldOptions world;
  world.environment = {.rank = rank,
                       .world_size = options.ranks,
                       .local_rank = rank,
                       .local_size = options.ranks,
                       .master_address = "127.0.0.1",
                       .master_port = port,
                       .source = "test"};
  world.timeout_s = options.timeout_s;
  world.rendezvous_timeout_s = 60;
  world.shm_segment_bytes = int64_t{4} << 30;  // the sanitizers have little address space
  world.transport = options.transport;
  world.algorithms = options.algorithms;
  world.observer = options.observer;
  if (options.step_hook) world.step_hook = options.step_hook(rank);
  if (!options.host_of_rank.empty()) {
    world.host = StrCat("host", options.host_of_rank[static_cast<size_t>(rank)], "-", port);
  }
  if (options.adjust) options.adjust(rank, &world);
  return world;
}

// What a process wrote before it ended: a report fits the pipe.
std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> piece;
  while (true) {
    const ssize_t size = read(fd, piece.data(), piece.size());
    if (size <= 0) return text;
    text.append(piece.data(), static_cast<size_t>(size));
  }
}

enum class ProcessState { kRuns, kStopped, kOver };

// Without taking the news away: a stopped process is one until it is killed.
ProcessState StateOf(int pid) {
  siginfo_t info = {};
  constexpr int kOptions = WEXITED | WSTOPPED | WNOHANG | WNOWAIT;
  CRIA_CHECK(waitid(P_PID, static_cast<id_t>(pid), &info, kOptions) == 0);
  if (info.si_pid == 0) return ProcessState::kRuns;
  return info.si_code == CLD_STOPPED ? ProcessState::kStopped : ProcessState::kOver;
}

// Until each process is over or stopped, or the time is over.
void WaitForAll(const std::vector<int>& pids, double deadline_s) {
  for (const int pid : pids) {
    while (StateOf(pid) == ProcessState::kRuns && RealClock()->MonotonicSeconds() < deadline_s) {
      poll(nullptr, 0, 2);
    }
  }
}

void WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = write(fd, text.data() + done, text.size() - done);
    if (size <= 0) return;
    done += static_cast<size_t>(size);
  }
}

// The life of one rank's process; never returns.
[[noreturn]] void BeRank(const comm::WorldOptions& options, int fd,
                         const std::function<std::string(comm::Communicator& world)>& body) {
  std::string report;
  {
    auto world = comm::JoinWorld(options);
    report = world.ok() ? body(**world) : StrCat("join: ", Message(world.status()));
  }
  WriteAll(fd, StrCat("report:", report));
  _exit(0);
}

// Held while a socket is bound to try a port, and while a process is made: a child that
// inherited that socket would hold the port.
Mutex* ForkMutex() {
  static Mutex mu;
  return &mu;
}

// A socket of the search must not live on in a rank.
int FreePort() {
  MutexLock lock(ForkMutex());
  const StatusOr<int> port = comm::FreePort();
  CRIA_CHECK(port.ok(), Message(port.status()));
  return *port;
}

pid_t Fork() {
  MutexLock lock(ForkMutex());
  return fork();
}

}  // namespace

void RunRankThreads(const RankOptions& options,
                    const std::function<void(comm::Communicator& world)>& body) {
  const int port = FreePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&options, &body, rank, port] {
      auto world = comm::JoinWorld(OptionsOf(options, rank, port));
      ASSERT_TRUE(world.ok()) << Message(world.status());
      body(**world);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<RankOutcome> RunRankProcesses(
    const RankOptions& options, const std::function<std::string(comm::Communicator& world)>& body,
    const std::function<void(const std::vector<int>& pids)>& meanwhile, double limit_s) {
  const int port = FreePort();
  const double deadline_s = RealClock()->MonotonicSeconds() + limit_s;
  std::vector<int> pids, fds;
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::array<int, 2> ends;
    CRIA_CHECK(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    const pid_t pid = Fork();
    CRIA_CHECK(pid >= 0);
    if (pid == 0) {
      for (const int fd : fds) close(fd);
      close(ends[0]);
      BeRank(OptionsOf(options, rank, port), ends[1], body);
    }
    close(ends[1]);
    fds.push_back(ends[0]);
    pids.push_back(pid);
  }
  if (meanwhile) meanwhile(pids);
  WaitForAll(pids, deadline_s);
  std::vector<RankOutcome> outcomes(pids.size());
  for (size_t i = 0; i < pids.size(); ++i) {
    if (StateOf(pids[i]) != ProcessState::kOver) kill(pids[i], SIGKILL);
    int status = 0;
    waitpid(pids[i], &status, 0);
    if (WIFSIGNALED(status)) outcomes[i].signal = WTERMSIG(status);
    const std::string text = ReadAll(fds[i]);
    outcomes[i].reported = text.rfind("report:", 0) == 0;
    if (outcomes[i].reported) outcomes[i].report = text.substr(7);
    close(fds[i]);
  }
  return outcomes;
}

}  // namespace cria

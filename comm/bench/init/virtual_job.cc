#include "comm/bench/init/virtual_job.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <memory>
#include <set>
#include <vector>

#include "base/clock.h"
#include "comm/bench/init/store_rank.h"
#include "comm/bench/init/store_server.h"
#include "comm/bench/init/virtual_board.h"
#include "comm/bench/init/virtual_rank.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/event_loop.h"
#include "comm/rendezvous/rendezvous_server.h"

namespace cria::comm {
namespace {

// Ranks that start between two looks at the sockets: those that have started are served meanwhile.
constexpr int kStartsAtOnce = 32;
// Ranks of the whole job that have started and do not have their place yet: below the kernel's
// limit for connections that wait to be taken (4096), as they are when a launcher starts them.
constexpr int kStartingMax = 2048;
constexpr double kStartPollSeconds = 0;
constexpr double kPollSeconds = 0.01;
constexpr useconds_t kReadyPollMicroseconds = 200;
// Descriptors that a process has beside its ranks'.
constexpr int64_t kDescriptorsBeside = 128;

double Now() { return RealClock()->MonotonicSeconds(); }

// That this process has used, the kernel's part included.
double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// One process: an event loop with its share of the ranks; the first has the master, too.
class Worker {
 public:
  Worker(const VirtualJobOptions& options, VirtualBoard* board, const std::string& run_name,
         int index, int num_workers)
      : options_(options),
        board_(board),
        job_({.num_ranks = options.num_ranks,
              .num_groups = options.num_groups,
              .ranks_per_host = options.ranks_per_host,
              .mesh = MeshOf(options.num_ranks),
              .master = {},
              .timeout_s = options.timeout_s,
              .run_name = run_name,
              .board = board}),
        process_map_(options.num_ranks),
        index_(index),
        num_workers_(num_workers),
        next_rank_(Share(index)),
        last_rank_(Share(index + 1)) {}

  Status Run(double deadline_s) {
    CRIA_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
    if (index_ == 0) CRIA_RETURN_IF_ERROR(Serve());
    board_->num_ready.fetch_add(1);
    while (!board_->go.load(std::memory_order_acquire)) {
      if (board_->failed()) return OkStatus();
      if (Now() > deadline_s) return LateError();
      usleep(kReadyPollMicroseconds);
    }
    CRIA_ASSIGN_OR_RETURN(job_.master, ParseAddress("127.0.0.1", board_->master_port.load()));
    while (!board_->failed()) {
      // Before the ranks are asked whether they are done: a job that ends late is late.
      if (Now() > deadline_s) return LateError();
      if (report_.done_s > 0) break;
      // While ranks can still be started, a look; else until one of them has got something.
      const bool started = StartSome();
      CRIA_RETURN_IF_ERROR(
          loop_->RunOnce(loop_->now_s() + (started ? kStartPollSeconds : kPollSeconds)));
      NoteTimes();
    }
    Report();
    return OkStatus();
  }

 private:
  // The first worker has the master and no ranks.
  int Share(int index) const {
    return static_cast<int>(int64_t{options_.num_ranks} * std::max(0, index - 1) /
                            (num_workers_ - 1));
  }

  Status LateError() const {
    return DeadlineExceededError(
        "init benchmark: after ", options_.timeout_s, " s ", board_->num_with_map.load(), " of ",
        options_.num_ranks, " ranks had their map, and ", board_->num_done.load(), " their groups");
  }

  Status Serve() {
    if (options_.scheme == InitScheme::kStore) {
      CRIA_ASSIGN_OR_RETURN(store_, StoreServer::Create(loop_.get()));
      board_->master_port.store(store_->port());
      return OkStatus();
    }
    CRIA_ASSIGN_OR_RETURN(server_,
                          RendezvousServer::Create(loop_.get(), {.address = "127.0.0.1",
                                                                 .degree = options_.degree,
                                                                 .timeout_s = options_.timeout_s,
                                                                 .one_job = true,
                                                                 .job = job_.run_name,
                                                                 .world_size = job_.num_ranks}));
    board_->master_port.store(server_->port());
    return OkStatus();
  }

  // False when no rank could be started: all have been, or too many wait for their place.
  bool StartSome() {
    const int first = next_rank_;
    const size_t starting_max = static_cast<size_t>(kStartingMax / (num_workers_ - 1));
    while (first_starting_ < ranks_.size() && ranks_[first_starting_]->placed()) ++first_starting_;
    for (int i = 0; i < kStartsAtOnce && next_rank_ < last_rank_ &&
                    ranks_.size() - first_starting_ < starting_max;
         ++i, ++next_rank_) {
      if (options_.scheme == InitScheme::kStore) {
        ranks_.push_back(std::make_unique<StoreRank>(loop_.get(), &job_, next_rank_));
      } else {
        ranks_.push_back(
            std::make_unique<VirtualRank>(loop_.get(), &job_, &process_map_, next_rank_));
      }
      ranks_.back()->Start();
    }
    return next_rank_ > first;
  }

  void NoteTimes() {
    if (report_.map_s == 0 &&
        board_->num_with_map.load(std::memory_order_acquire) == options_.num_ranks) {
      report_.map_s = Now();
    }
    if (board_->num_done.load(std::memory_order_acquire) == options_.num_ranks) {
      report_.done_s = Now();
      report_.cpu_s = CpuSeconds();
    }
  }

  void Report() {
    const auto add = [this](const WireCounters& counters) {
      report_.counters.connections += counters.connections;
      report_.counters.messages += counters.messages;
      report_.counters.bytes += counters.bytes;
    };
    for (const auto& rank : ranks_) {
      add(rank->counters());
      report_.rounds = std::max(report_.rounds, rank->rounds());
    }
    if (store_ != nullptr) {
      add({.connections = 0,
           .messages = store_->messages(),
           .bytes = store_->messages() * int64_t{sizeof(uint64_t)}});
    }
    if (server_ != nullptr) add(server_->counters());
    report_.map_bytes = static_cast<int64_t>(process_map_.map_bytes());
    report_.decode_s = process_map_.decode_s();
    board_->reports[static_cast<size_t>(index_)] = report_;
  }

  const VirtualJobOptions options_;
  VirtualBoard* const board_;
  VirtualJob job_;
  std::unique_ptr<EventLoop> loop_;
  ProcessMap process_map_;
  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<StoreServer> store_;
  const int index_;
  const int num_workers_;
  int next_rank_;
  const int last_rank_;
  std::vector<std::unique_ptr<VirtualEndpoint>> ranks_;
  size_t first_starting_ = 0;  // those before it are placed
  VirtualReport report_;
};

// Descriptors that a host's ranks have open, divided by their number: listeners, places in the
// tree, links in and out.
int64_t DescriptorsPerRank(const VirtualJobOptions& options) {
  if (options.scheme == InitScheme::kStore) return options.num_ranks + 4;
  const Mesh mesh = MeshOf(options.num_ranks);
  const int num_looked_at = std::min(options.ranks_per_host, options.num_ranks);
  int64_t links = 0;  // outgoing; as many come in
  for (int rank = 0; rank < num_looked_at; ++rank) {
    std::set<int> on_host;
    for (const MeshGroup& group : GroupsOf(mesh, rank, options.num_groups)) {
      const size_t size = group.members.size();
      const int next = group.members[(static_cast<size_t>(group.position) + 1) % size];
      if (size < 2) continue;
      if (next >= options.ranks_per_host || on_host.insert(next).second) ++links;
    }
  }
  return 5 + (2 * links + num_looked_at - 1) / num_looked_at;
}

StatusOr<int> NumProcesses(const VirtualJobOptions& options) {
  const int64_t needed = options.num_ranks * DescriptorsPerRank(options);
  const int64_t allowed =
      AllowDescriptors(needed / options.num_processes + kDescriptorsBeside) - kDescriptorsBeside;
  const int64_t processes = std::max<int64_t>(
      options.num_processes, (needed + allowed - 1) / std::max<int64_t>(1, allowed));
  if (allowed <= 0 || processes > kVirtualWorkersMax) {
    return ResourceExhaustedError("init benchmark: ", options.num_ranks, " ranks open ", needed,
                                  " file descriptors; a process may open ",
                                  allowed + kDescriptorsBeside, ", and at most ",
                                  kVirtualWorkersMax, " are started; raise ulimit -n");
  }
  return static_cast<int>(std::min<int64_t>(processes, options.num_ranks)) + 1;  // the master's
}

// Kills what is left of the workers.
class Children {
 public:
  ~Children() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    while (!pids_.empty()) {
      waitpid(pids_.back(), nullptr, 0);
      pids_.pop_back();
    }
  }
  void Add(pid_t pid) { pids_.push_back(pid); }
  // Waits for the end of all; the board says what happened.
  void Wait(VirtualBoard* board) {
    while (!pids_.empty()) {
      int status = 0;
      if (waitpid(pids_.back(), &status, 0) < 0 && errno == EINTR) continue;
      pids_.pop_back();
      if (status != 0) board->Fail(InternalError("a worker ended with wait status ", status));
    }
  }

 private:
  std::vector<pid_t> pids_;
};

InitSample Summarise(const VirtualBoard& board, int num_workers, double start_s) {
  InitSample sample;
  for (int i = 0; i < num_workers; ++i) {
    const VirtualReport& report = board.reports[static_cast<size_t>(i)];
    // The first that saw it is the one that made it so.
    const auto earliest = [i, start_s](double so_far, double time_s) {
      return i == 0 ? time_s - start_s : std::min(so_far, time_s - start_s);
    };
    sample.seconds = earliest(sample.seconds, report.done_s);
    sample.map_seconds = earliest(sample.map_seconds, report.map_s);
    sample.cpu_seconds += report.cpu_s;
    sample.rounds = std::max(sample.rounds, report.rounds);
    sample.connections += report.counters.connections;
    sample.messages += report.counters.messages;
    sample.bytes += report.counters.bytes;
    sample.map_bytes = report.map_bytes;
    sample.decode_seconds = std::max(sample.decode_seconds, report.decode_s);
  }
  sample.processes = num_workers;
  return sample;
}

}  // namespace

int64_t AllowDescriptors(int64_t wanted) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto count = static_cast<rlim_t>(wanted);
  if (limit.rlim_cur >= count) return wanted;
  rlimit raised = {.rlim_cur = count, .rlim_max = std::max(limit.rlim_max, count)};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return wanted;
  raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return static_cast<int64_t>(std::min(limit.rlim_max, count));
}

StatusOr<InitSample> RunVirtualJob(const VirtualJobOptions& options) {
  CRIA_ASSIGN_OR_RETURN(const int num_workers, NumProcesses(options));
  CRIA_ASSIGN_OR_RETURN(const auto board, VirtualBoard::Create());
  const std::string run_name = StrCat("init-", BackoffSeed());
  const double deadline_s = Now() + options.timeout_s;
  Children children;
  for (int i = 0; i < num_workers; ++i) {
    const pid_t pid = fork();
    if (pid < 0) return ErrnoError(errno, "fork a worker");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Worker worker(options, board.get(), run_name, i, num_workers);
      if (const Status status = worker.Run(deadline_s); !status.ok()) board->Fail(status);
      // No destructors: the kernel closes thousands of sockets faster.
      _exit(0);
    }
    children.Add(pid);
  }
  while (board->num_ready.load() < num_workers && !board->failed() && Now() < deadline_s) {
    usleep(kReadyPollMicroseconds);
  }
  const double start_s = Now();
  board->go.store(true, std::memory_order_release);
  children.Wait(board.get());
  CRIA_RETURN_IF_ERROR(board->failure());
  return Summarise(*board, num_workers, start_s);
}

}  // namespace cria::comm

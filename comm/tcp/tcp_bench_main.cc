// tcp_bench: all-reduce over the loopback, forked ranks, by the transport alone.
//
//   tcp_bench --ranks 2 --bytes-max 67108864 --streams 1
//
// Each row: verified once, then timed; the median of the slowest rank's times; beside it the time
// in which as many bytes cross raw loopback streams in the same pattern (each rank sends and
// receives what an all-reduce must send and receive), measured in the same run, in turns.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "comm/plan/planner.h"
#include "comm/tcp/raw_stream.h"
#include "comm/tcp/tcp_domain.h"

namespace cria::comm {
namespace {

struct Flags {
  int ranks = 2;
  int64_t bytes_min = 8;
  int64_t bytes_max = 64 << 20;
  int factor = 8;
  int streams = 1;
  int iterations = 0;  // 0: by size
  std::string algorithm = {};
  bool json = false;
};

constexpr int kIterationsMax = 2000;

// What the ranks share: barriers and times.
struct Board {
  std::atomic<int> arrived{0};
  std::atomic<int> failed{0};
  std::atomic<int> port[64] = {};
  int raw_port[64] = {};
  std::atomic<int64_t> slowest_ns[2][kIterationsMax];
};

double Now() { return RealClock()->MonotonicSeconds(); }

class Rank {
 public:
  Rank(const Flags& flags, Board* board, int rank) : flags_(flags), board_(board), rank_(rank) {}

  int Main();

 private:
  Status Open();
  Status Measure(int64_t bytes);
  Status AllReduce(const Plan& plan, int64_t count);
  StatusOr<Plan> PlanFor(int64_t count) const;
  Status Verify(int64_t count) const;
  // All ranks, spinning: nothing of it is timed.
  void Barrier();
  void Report(int64_t bytes, int iterations, const Plan& plan) const;

  const Flags& flags_;
  Board* const board_;
  const int rank_;
  int num_barriers_ = 0;
  uint64_t sequence_ = 0;
  GroupTopology topology_;
  AlgorithmOverrides overrides_;
  std::unique_ptr<TcpDomain> domain_;
  GroupInfo group_;
  FailureState failure_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<RawStreams> raw_;
  std::vector<float> input_, output_;
  std::vector<std::byte> scratch_;
};

void Rank::Barrier() {
  const int target = ++num_barriers_ * flags_.ranks;
  board_->arrived.fetch_add(1, std::memory_order_acq_rel);
  while (board_->arrived.load(std::memory_order_acquire) < target) {
    if (board_->failed.load(std::memory_order_relaxed) != 0) _exit(1);
    std::this_thread::yield();
  }
}

Status Rank::Open() {
  CRIA_ASSIGN_OR_RETURN(domain_,
                        TcpDomain::Create({.address = "127.0.0.1", .streams = flags_.streams}));
  board_->port[rank_].store(domain_->port(), std::memory_order_relaxed);
  Barrier();
  auto map = std::make_shared<RankMap>();
  for (int rank = 0; rank < flags_.ranks; ++rank) {
    RankInfo info;
    info.host = "here";
    info.address = "127.0.0.1";
    info.port = board_->port[rank].load(std::memory_order_relaxed);
    map->push_back(info);
    group_.world_ranks.push_back(rank);
    group_.local_ranks.push_back(rank);
  }
  group_.name = "bench";
  group_.id = 1;
  group_.rank = rank_;
  domain_->Start(rank_, map);
  CRIA_ASSIGN_OR_RETURN(transport_, domain_->OpenGroup(group_, &failure_));
  CRIA_ASSIGN_OR_RETURN(
      raw_, RawStreams::Open(flags_.ranks, rank_, board_->raw_port, [this] { Barrier(); }));
  topology_.host_of_rank.assign(static_cast<size_t>(flags_.ranks), 0);
  if (!flags_.algorithm.empty()) {
    CRIA_ASSIGN_OR_RETURN(overrides_, ParseAlgorithmOverrides("all_reduce:" + flags_.algorithm));
  }
  const auto elements = static_cast<size_t>(flags_.bytes_max / 4);
  input_.resize(elements);
  output_.resize(elements);
  for (size_t i = 0; i < elements; ++i) {
    input_[i] = static_cast<float>((static_cast<size_t>(rank_) + 1) * (i % 251));
  }
  return OkStatus();
}

StatusOr<Plan> Rank::PlanFor(int64_t count) const {
  return BuildPlan({.kind = OpKind::kAllReduce,
                    .dtype = DataType::kFloat32,
                    .count = count,
                    .topology = &topology_,
                    .rank = rank_,
                    .tcp_only = true},
                   overrides_);
}

Status Rank::AllReduce(const Plan& plan, int64_t count) {
  constexpr double kTimeoutSeconds = 60;
  OperationContext context{.plan = &plan, .timeout_s = kTimeoutSeconds};
  context.signature = {.group_id = group_.id,
                       .sequence = ++sequence_,
                       .plan_digest = plan.digest,
                       .count = count,
                       .input_bytes = count * 4,
                       .kind = OpKind::kAllReduce};
  context.slots[0] = reinterpret_cast<std::byte*>(input_.data());
  context.slots[1] = reinterpret_cast<std::byte*>(output_.data());
  context.slots[2] = scratch_.data();
  context.deadline_s = Now() + kTimeoutSeconds;
  return transport_->Run(context, plan.rounds);
}

Status Rank::Verify(int64_t count) const {
  const int factor = flags_.ranks * (flags_.ranks + 1) / 2;
  for (int64_t i = 0; i < count; ++i) {
    const auto want = static_cast<float>(factor * (i % 251));
    if (output_[static_cast<size_t>(i)] != want) {
      return DataLossError("rank ", rank_, " element ", i, ": ", output_[static_cast<size_t>(i)],
                           " instead of ", want);
    }
  }
  return OkStatus();
}

Status Rank::Measure(int64_t bytes) {
  const int64_t count = bytes / 4;
  CRIA_ASSIGN_OR_RETURN(const Plan plan, PlanFor(count));
  scratch_.resize(static_cast<size_t>(plan.scratch_elements * 4));
  std::fill(output_.begin(), output_.begin() + count, -1.0f);
  CRIA_RETURN_IF_ERROR(AllReduce(plan, count));
  CRIA_RETURN_IF_ERROR(Verify(count));
  // What a rank must send and receive at least: 2 (n-1)/n of the bytes.
  const int64_t least = std::max<int64_t>(1, 2 * bytes * (flags_.ranks - 1) / flags_.ranks);
  const int iterations = flags_.iterations > 0
                             ? std::min(flags_.iterations, kIterationsMax)
                             : static_cast<int>(std::clamp<int64_t>(
                                   (256 << 20) / std::max<int64_t>(bytes, 1), 15, 1000));
  for (int i = 0; i < iterations; ++i) {
    for (const int which : {0, 1}) {
      Barrier();
      const double start_s = Now();
      CRIA_RETURN_IF_ERROR(which == 0 ? AllReduce(plan, count) : raw_->Move(least));
      const auto ns = static_cast<int64_t>((Now() - start_s) * 1e9);
      std::atomic<int64_t>& slowest = board_->slowest_ns[which][i];
      int64_t seen = slowest.load(std::memory_order_relaxed);
      while (ns > seen && !slowest.compare_exchange_weak(seen, ns, std::memory_order_relaxed)) {
      }
    }
  }
  Barrier();
  if (rank_ == 0) Report(bytes, iterations, plan);
  Barrier();
  if (rank_ == 0) {
    for (auto& times : board_->slowest_ns) {
      for (auto& time : times) time.store(0, std::memory_order_relaxed);
    }
  }
  Barrier();
  return OkStatus();
}

void Rank::Report(int64_t bytes, int iterations, const Plan& plan) const {
  double us[2];
  for (const int which : {0, 1}) {
    std::vector<double> times;
    for (int i = 0; i < iterations; ++i) {
      times.push_back(
          1e-3 * static_cast<double>(board_->slowest_ns[which][i].load(std::memory_order_relaxed)));
    }
    std::nth_element(times.begin(), times.begin() + iterations / 2, times.end());
    us[which] = times[static_cast<size_t>(iterations / 2)];
  }
  const double gigabytes = static_cast<double>(bytes) / us[0] * 1e-3;
  if (!flags_.json) {
    std::printf("%12lld %-16s %12.1f %8.3f %12.1f %6.2f\n", static_cast<long long>(bytes),
                Name(plan.algorithm), us[0], gigabytes, us[1], us[0] / us[1]);
  } else {
    const Json row = {
        {"bytes", bytes},   {"ranks", flags_.ranks}, {"algorithm", Name(plan.algorithm)},
        {"time_us", us[0]}, {"algbw", gigabytes},    {"raw_us", us[1]}};
    std::printf("%s\n", row.dump().c_str());
  }
  std::fflush(stdout);
}

int Rank::Main() {
  Status status = Open();
  for (int64_t bytes = flags_.bytes_min; status.ok() && bytes <= flags_.bytes_max;
       bytes *= flags_.factor) {
    status = Measure(bytes);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "tcp_bench: rank %d: %s\n", rank_, Message(status).c_str());
  board_->failed.store(1);
  return 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("All-reduce of float32 over the loopback by the TCP transport, beside raw streams.");
  app.add_option("--ranks", flags.ranks, "processes")->check(CLI::Range(2, 64));
  app.add_option("--bytes-min", flags.bytes_min, "smallest")->check(CLI::Range(4, 1 << 30));
  app.add_option("--bytes-max", flags.bytes_max, "largest")->check(CLI::Range(4, 1 << 30));
  app.add_option("--factor", flags.factor, "between sizes")->check(CLI::Range(2, 1 << 20));
  app.add_option("--streams", flags.streams, "connections a pair")->check(CLI::Range(1, 64));
  app.add_option("--iterations", flags.iterations, "of each row; 0: by size");
  app.add_option("--algorithm", flags.algorithm, "ring, flat, ...; default: the planner's choice");
  app.add_flag("--json", flags.json, "one object a row");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* board = new (memory) Board;
  if (!flags.json) {
    std::printf("%d ranks on %u cores, %d streams\n%12s %-16s %12s %8s %12s %6s\n", flags.ranks,
                std::thread::hardware_concurrency(), flags.streams, "bytes", "algorithm", "time us",
                "GB/s", "raw us", "ratio");
    std::fflush(stdout);
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < flags.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(Rank(flags, board, rank).Main());
    children.push_back(child);
  }
  int outcome = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) outcome = 1;
  }
  return outcome;
}

}  // namespace
}  // namespace cria::comm

int main(int argc, char** argv) { return cria::comm::Main(argc, argv); }

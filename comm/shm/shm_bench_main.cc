// How fast the shared-memory transport is, beside what the machine allows.
//
//   bazel run //comm/shm:shm_bench -- --ranks 2
//
// Forked ranks run flat all_reduces of float32 on the transport itself, without communicator. For
// each size: results are checked, then timed; beside them one rank's share of the same reduction
// with nothing to wait for, and the round trip of a flag. Times are medians of the slowest rank.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "comm/engine/failure.h"
#include "comm/plan/planner.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/futex.h"
#include "comm/shm/shm_domain.h"

namespace cria::comm {
namespace {

constexpr int kRanksMax = 64;
constexpr int kSamplesMax = 4096;

struct Options {
  int ranks = 2;
  std::vector<int64_t> bytes = {8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  double seconds = 0.4;  // a row
  std::string memory = "both";
};

// What the processes share, from before the fork.
struct Board {
  std::array<std::array<char, 100>, kRanksMax> sockets;
  std::atomic<int> arrived;
  std::atomic<uint32_t> flags[2][16];
  // Microseconds by sample: of the slowest rank.
  std::array<std::atomic<double>, kSamplesMax> samples;
  std::atomic<int> num_samples;
};

double Now() { return RealClock()->MonotonicSeconds(); }

// One rank's process.
class Rank {
 public:
  Rank(const Options& options, int rank, Board* board)
      : options_(options),
        board_(board),
        group_{.name = "bench", .id = 1, .rank = rank, .world_ranks = {}, .local_ranks = {}} {
    auto domain = ShmDomain::Create({});
    CRIA_CHECK(domain.ok(), Message(domain.status()));
    domain_ = *std::move(domain);
    std::strncpy(board->sockets[static_cast<size_t>(rank)].data(), domain_->socket_name().c_str(),
                 99);
    Meet();
    auto map = std::make_shared<RankMap>(static_cast<size_t>(options.ranks));
    for (size_t i = 0; i < map->size(); ++i) (*map)[i].shm_socket = board->sockets[i].data();
    domain_->Start(rank, map);
    group_.world_ranks.resize(map->size());
    std::iota(group_.world_ranks.begin(), group_.world_ranks.end(), 0);
    group_.local_ranks = group_.world_ranks;
    topology_.host_of_rank.assign(map->size(), 0);
    auto transport = domain_->OpenGroup(group_, &failure_);
    CRIA_CHECK(transport.ok(), Message(transport.status()));
    transport_ = *std::move(transport);
  }

  void Row(int64_t bytes, bool shared) {
    const int64_t count = std::max<int64_t>(1, bytes / 4);
    Prepare(count, shared);
    const PlanRequest request = {
        .kind = OpKind::kAllReduce, .count = count, .topology = &topology_, .rank = group_.rank};
    auto plan = BuildPlan(request, {{OpKind::kAllReduce, Algorithm::kFlat}});
    CRIA_CHECK(plan.ok(), Message(plan.status()));
    plan_ = *std::move(plan);
    std::memset(output_, 0xFF, static_cast<size_t>(bytes));
    AllReduce();
    const auto factor = static_cast<float>(options_.ranks * (options_.ranks + 1) / 2);
    for (int64_t i = 0; i < count; ++i) {
      CRIA_CHECK_EQ(output_[i], factor * static_cast<float>(i % 1000));
    }
    // Operations of a sample: so many that the clock does not count.
    const int batch = static_cast<int>(std::clamp<int64_t>((256 << 10) / bytes, 1, 2000));
    Time(batch);
    if (group_.rank == 0) Print(bytes, shared, batch);
    Meet();
  }

  void FlagRoundTrip() {
    constexpr int kRounds = 20000;
    if (group_.rank > 1) return;
    std::atomic<uint32_t>* mine = &board_->flags[group_.rank][0];
    std::atomic<uint32_t>* theirs = &board_->flags[1 - group_.rank][0];
    const double start = Now();
    for (uint32_t i = 1; i <= kRounds; ++i) {
      if (group_.rank == 0) mine->store(i, std::memory_order_release);
      for (uint64_t looks = 1; theirs->load(std::memory_order_acquire) != i; ++looks) {
        CpuRelax();
        if (looks % kLooksPerCheck == 0) CheckMeeting(start);
      }
      if (group_.rank == 1) mine->store(i, std::memory_order_release);
    }
    if (group_.rank == 0) {
      std::printf("flag round trip %.0f ns\n", (Now() - start) / kRounds * 1e9);
    }
  }

  // Meets all other ranks, outside of what is measured.
  void Meet() {
    const int n = options_.ranks;
    const int mine = board_->arrived.fetch_add(1);
    const int target = (mine / n + 1) * n;
    const double start = Now();
    while (board_->arrived.load() < target) {
      usleep(100);
      CheckMeeting(start);
    }
  }

 private:
  static constexpr uint64_t kLooksPerCheck = 1 << 20;
  // A row takes seconds: who has not come after this has died.
  static constexpr double kMeetingSeconds = 100;

  void CheckMeeting(double start) const {
    CRIA_CHECK(Now() - start < kMeetingSeconds, "rank ", group_.rank, " of ", options_.ranks,
               " has waited for the others for ", kMeetingSeconds, " s");
  }

  void Prepare(int64_t count, bool shared) {
    shared_ = nullptr;
    private_.clear();
    private_.shrink_to_fit();
    if (shared) {
      auto buffer = domain_->Allocate(count * 8 + 128);
      CRIA_CHECK(buffer.ok(), Message(buffer.status()));
      shared_ = *std::move(buffer);
      input_ = static_cast<float*>(shared_->data());
    } else {
      private_.resize(static_cast<size_t>(2 * count + 32));
      input_ = private_.data();
    }
    output_ = input_ + (count + 15) / 16 * 16;
    for (int64_t i = 0; i < count; ++i) {
      input_[i] = static_cast<float>((group_.rank + 1) * (i % 1000));
    }
  }

  void AllReduce() {
    OperationContext context = {.plan = &plan_, .deadline_s = deadline_s_, .timeout_s = 100};
    context.signature = {.group_id = 1,
                         .sequence = ++sequence_,
                         .plan_digest = plan_.digest,
                         .count = plan_.count,
                         .kind = OpKind::kAllReduce,
                         .algorithm = plan_.algorithm};
    context.slots[0] = reinterpret_cast<std::byte*>(input_);
    context.slots[1] = reinterpret_cast<std::byte*>(output_);
    const Status status = transport_->Run(context, plan_.rounds);
    CRIA_CHECK(status.ok(), Message(status));
  }

  void Time(int batch) {
    if (group_.rank == 0) {
      for (auto& sample : board_->samples) sample.store(0, std::memory_order_relaxed);
      board_->num_samples.store(kSamplesMax);
    }
    Meet();
    const double end = Now() + options_.seconds;
    for (int sample = 0; sample < board_->num_samples.load(std::memory_order_relaxed); ++sample) {
      const double start = Now();
      for (int i = 0; i < batch; ++i) AllReduce();
      const double us = (Now() - start) / batch * 1e6;
      std::atomic<double>& slot = board_->samples[static_cast<size_t>(sample)];
      double seen = slot.load();
      while (us > seen && !slot.compare_exchange_weak(seen, us)) {
      }
      // Rank 0 says how many there are to be, early enough for all.
      if (group_.rank == 0 && Now() > end && board_->num_samples.load() == kSamplesMax) {
        board_->num_samples.store(std::min(kSamplesMax, sample + 3));
      }
      AllReduce();
    }
    Meet();
  }

  // One rank's share of the work with nobody to wait for: a slice of all inputs, to all outputs.
  double ShareAloneUs(int64_t bytes) {
    const int64_t slice = std::max<int64_t>(1, bytes / 4 / options_.ranks);
    std::vector<ReduceSource> sources;
    std::vector<ReduceTarget> targets;
    const auto n = static_cast<size_t>(options_.ranks);
    std::vector<float> memory(2 * n * static_cast<size_t>(slice) + 64, 1.0f);
    for (size_t i = 0; i < n; ++i) {
      sources.push_back({.data = memory.data() + 2 * i * static_cast<size_t>(slice)});
      targets.push_back({.data = memory.data() + (2 * i + 1) * static_cast<size_t>(slice)});
    }
    std::vector<double> times;
    for (int i = 0; i < 15; ++i) {
      const double start = Now();
      RunReduce({}, sources, targets, slice, bytes >= (8 << 20));
      times.push_back((Now() - start) * 1e6);
    }
    std::nth_element(times.begin(), times.begin() + 7, times.end());
    return times[7];
  }

  void Print(int64_t bytes, bool shared, int batch) {
    const int n = board_->num_samples.load();
    std::vector<double> us;
    for (int i = 1; i < n; ++i) {  // without the first, which warms up
      if (board_->samples[static_cast<size_t>(i)] > 0) {
        us.push_back(board_->samples[static_cast<size_t>(i)]);
      }
    }
    CRIA_CHECK(!us.empty());
    std::sort(us.begin(), us.end());
    const double median = us[us.size() / 2];
    std::printf(
        "%9lld B  %-7s  median %10.2f us  best %10.2f us  %7.2f GB/s   share alone %9.2f "
        "us  (%zu samples of %d)\n",
        static_cast<long long>(bytes), shared ? "segment" : "private", median, us[0],
        static_cast<double>(bytes) / median / 1e3, ShareAloneUs(bytes), us.size(), batch);
    std::fflush(stdout);
  }

  const Options& options_;
  Board* const board_;
  GroupInfo group_;
  GroupTopology topology_;
  FailureState failure_;
  std::unique_ptr<ShmDomain> domain_;
  std::unique_ptr<SharedBuffer> shared_;
  std::unique_ptr<Transport> transport_;
  std::vector<float> private_;
  float* input_ = nullptr;
  float* output_ = nullptr;
  Plan plan_;
  uint64_t sequence_ = 0;
  const double deadline_s_ = Now() + 1000;
};

void BeRank(const Options& options, int rank, Board* board) {
  Rank self(options, rank, board);
  self.FlagRoundTrip();
  self.Meet();
  for (const int64_t bytes : options.bytes) {
    if (options.memory != "private") self.Row(bytes, true);
    if (options.memory != "segment") self.Row(bytes, false);
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Times flat all_reduces of float32 over shared memory");
  app.add_option("--ranks", options.ranks, "processes")->check(CLI::Range(1, kRanksMax));
  app.add_option("--bytes", options.bytes, "sizes");
  app.add_option("--seconds", options.seconds, "a row's time");
  app.add_option("--memory", options.memory, "where buffers are")
      ->check(CLI::IsMember({"segment", "private", "both"}));
  CLI11_PARSE(app, argc, argv);
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CRIA_CHECK(memory != MAP_FAILED);
  auto* board = static_cast<Board*>(memory);
  std::printf("%s, %d ranks\n", CpuName().c_str(), options.ranks);
  std::fflush(stdout);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = fork();
    CRIA_CHECK(pid >= 0);
    if (pid == 0) {
      BeRank(options, rank, board);
      std::fflush(stdout);
      _exit(0);
    }
  }
  int worst = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    int status = 0;
    wait(&status);
    worst = std::max(worst, status == 0 ? 0 : 1);
  }
  return worst;
}

}  // namespace
}  // namespace cria::comm

int main(int argc, char** argv) { return cria::comm::Main(argc, argv); }

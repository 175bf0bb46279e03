#include "tests/unit/comm/shm/shm_ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace cria::comm {
namespace {

constexpr int kRanksMax = 16;

// What the processes of a test share: their sockets' names, and how many are ready.
struct Board {
  std::array<std::array<char, 100>, kRanksMax> sockets;
  std::atomic<int> num_listening;
  std::atomic<int> num_ready;
};

void WaitUntil(const std::atomic<int>& counter, int target) {
  const double deadline_s = RealClock()->MonotonicSeconds() + 60;
  while (counter.load() < target) {
    CRIA_CHECK(RealClock()->MonotonicSeconds() < deadline_s, counter.load(), " of ", target);
    poll(nullptr, 0, 1);
  }
}

std::unique_ptr<ShmDomain> MakeDomain() {
  auto domain = ShmDomain::Create({.segment_bytes = int64_t{4} << 30});  // sanitizers have little
  CRIA_CHECK(domain.ok(), Message(domain.status()));
  return *std::move(domain);
}

[[noreturn]] void BeProcess(int rank, int size, Board* board, int report_fd,
                            const std::function<std::string(ShmProcess& self)>& body) {
  std::string report;
  {
    std::unique_ptr<ShmDomain> domain = MakeDomain();
    std::strcpy(board->sockets[static_cast<size_t>(rank)].data(), domain->socket_name().c_str());
    board->num_listening.fetch_add(1);
    WaitUntil(board->num_listening, size);
    auto map = std::make_shared<RankMap>();
    for (int i = 0; i < size; ++i) {
      map->emplace_back().shm_socket = board->sockets[static_cast<size_t>(i)].data();
    }
    domain->Start(rank, map);
    ShmRank self(domain.get(), rank, size);
    ShmProcess process = {.rank = &self, .ready = [board] { board->num_ready.fetch_add(1); }};
    report = body(process);
  }
  CRIA_CHECK(write(report_fd, report.data(), report.size()) == static_cast<ssize_t>(report.size()));
  _exit(0);
}

}  // namespace

ShmRank::ShmRank(ShmDomain* domain, int rank, int size, uint64_t group_id)
    : domain_(domain),
      num_sent_(static_cast<size_t>(size)),
      num_received_(static_cast<size_t>(size)) {
  group_.name = "test";
  group_.id = group_id;
  group_.rank = rank;
  group_.world_ranks.resize(static_cast<size_t>(size));
  std::iota(group_.world_ranks.begin(), group_.world_ranks.end(), 0);
  group_.local_ranks = group_.world_ranks;
  topology_.host_of_rank.assign(static_cast<size_t>(size), 0);
  auto transport = domain->OpenGroup(group_, &failure_);
  CRIA_CHECK(transport.ok(), Message(transport.status()));
  transport_ = *std::move(transport);
}

Status ShmRank::Collective(PlanRequest request, Algorithm algorithm, const void* input,
                           void* output, double timeout_s, bool private_scratch) {
  request.topology = &topology_;
  request.rank = rank();
  CRIA_ASSIGN_OR_RETURN(const Plan plan, BuildPlan(request, {{request.kind, algorithm}}));
  OperationContext context = {.plan = &plan,
                              .deadline_s = RealClock()->MonotonicSeconds() + timeout_s,
                              .timeout_s = timeout_s,
                              .on_step = on_step};
  context.signature = {.group_id = group_.id,
                       .sequence = ++sequence_,
                       .plan_digest = plan.digest,
                       .count = request.count,
                       .input_bytes = request.count * ByteSize(request.dtype),
                       .root = request.root,
                       .kind = request.kind,
                       .dtype = request.dtype,
                       .reduce_op = request.reduce_op,
                       .algorithm = plan.algorithm};
  const int64_t scratch_bytes = plan.scratch_elements * SlotElementBytes(plan, Slot::kScratch);
  CRIA_ASSIGN_OR_RETURN(const auto shared, domain_->Allocate(scratch_bytes));
  std::vector<std::byte> own(static_cast<size_t>(scratch_bytes));
  context.slots[0] = static_cast<std::byte*>(const_cast<void*>(input));
  context.slots[1] = static_cast<std::byte*>(output);
  context.slots[2] = private_scratch ? own.data() : static_cast<std::byte*>(shared->data());
  return transport_->Run(context, plan.rounds);
}

Status ShmRank::Exchange(std::vector<Transfer> sends, std::vector<Transfer> recvs,
                         double timeout_s) {
  OperationContext context = {.deadline_s = RealClock()->MonotonicSeconds() + timeout_s,
                              .timeout_s = timeout_s,
                              .on_step = on_step};
  context.signature.kind = OpKind::kGroup;
  context.signature.sequence = ++sequence_;
  for (Transfer& send : sends) send.number = ++num_sent_[static_cast<size_t>(send.peer)];
  for (Transfer& recv : recvs) recv.number = ++num_received_[static_cast<size_t>(recv.peer)];
  return transport_->Exchange(context, sends, recvs);
}

void RunShmThreads(int size, const std::function<void(ShmRank& rank)>& body) {
  std::vector<std::unique_ptr<ShmDomain>> domains;
  auto map = std::make_shared<RankMap>();
  for (int rank = 0; rank < size; ++rank) {
    domains.push_back(MakeDomain());
    map->emplace_back().shm_socket = domains.back()->socket_name();
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&domains, &map, &body, rank, size] {
      ShmDomain* domain = domains[static_cast<size_t>(rank)].get();
      domain->Start(rank, map);
      ShmRank self(domain, rank, size);
      body(self);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<ShmOutcome> RunShmProcesses(
    int size, const std::function<std::string(ShmProcess& self)>& body, int num_ready,
    const std::function<void(const std::vector<int>&)>& meanwhile) {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CRIA_CHECK(memory != MAP_FAILED && size <= kRanksMax);
  auto* board = static_cast<Board*>(memory);
  std::vector<int> pids, fds;
  for (int rank = 0; rank < size; ++rank) {
    std::array<int, 2> ends;
    CRIA_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0);
    const pid_t pid = fork();
    CRIA_CHECK(pid >= 0);
    if (pid == 0) BeProcess(rank, size, board, ends[1], body);
    close(ends[1]);
    pids.push_back(pid);
    fds.push_back(ends[0]);
  }
  if (meanwhile) {
    WaitUntil(board->num_ready, num_ready);
    meanwhile(pids);
  }
  std::vector<ShmOutcome> outcomes(pids.size());
  std::vector<int> statuses(pids.size());
  for (size_t i = 0; i < pids.size(); ++i) waitpid(pids[i], &statuses[i], WUNTRACED);
  for (size_t i = 0; i < pids.size(); ++i) {
    if (WIFSTOPPED(statuses[i])) {
      kill(pids[i], SIGKILL);
      waitpid(pids[i], &statuses[i], 0);
    }
    if (WIFSIGNALED(statuses[i])) outcomes[i].signal = WTERMSIG(statuses[i]);
    std::array<char, 4096> report;  // the pipe held it
    const ssize_t bytes = read(fds[i], report.data(), report.size());
    if (bytes > 0) outcomes[i].report.assign(report.data(), static_cast<size_t>(bytes));
    close(fds[i]);
  }
  munmap(memory, sizeof(Board));
  return outcomes;
}

}  // namespace cria::comm

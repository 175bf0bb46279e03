// Ranks of one host for the tests of comm/shm: a domain and a transport each, no rendezvous. As
// threads (the sanitizers see all ranks) or as processes (which can be killed).
//
//   RunShmThreads(3, [](ShmRank& rank) { EXPECT_TRUE(rank.Collective(...).ok()); });

#ifndef CRIA_TESTS_UNIT_COMM_SHM_SHM_RANKS_H_
#define CRIA_TESTS_UNIT_COMM_SHM_SHM_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/engine/failure.h"
#include "comm/engine/transport.h"
#include "comm/plan/planner.h"
#include "comm/shm/shm_domain.h"

namespace cria::comm {

class ShmRank {
 public:
  // The domain is started; the group has all `size` ranks.
  ShmRank(ShmDomain* domain, int rank, int size, uint64_t group_id = 7);

  int rank() const { return group_.rank; }
  int size() const { return group_.size(); }
  ShmDomain& domain() { return *domain_; }
  FailureState& failure() { return failure_; }

  // Runs the plan that the planner makes of the request (rank and topology are filled in) on this
  // rank's buffers; scratch is taken from the segment, or private.
  Status Collective(PlanRequest request, Algorithm algorithm, const void* input, void* output,
                    double timeout_s = 60, bool private_scratch = false);
  // Sends and receives, each to or from a peer: numbered here.
  Status Exchange(std::vector<Transfer> sends, std::vector<Transfer> recvs, double timeout_s = 60);

  const StepHook* on_step = nullptr;

 private:
  ShmDomain* const domain_;
  GroupInfo group_;
  GroupTopology topology_;
  FailureState failure_;
  std::unique_ptr<Transport> transport_;
  uint64_t sequence_ = 0;
  std::vector<uint64_t> num_sent_;
  std::vector<uint64_t> num_received_;
};

void RunShmThreads(int size, const std::function<void(ShmRank& rank)>& body);

// What became of each process: its report, or the signal that ended it.
struct ShmOutcome {
  std::string report;
  int signal = 0;
};
// Each rank is a process that reports what `body` returns. `meanwhile` runs here with their pids,
// after `ready()` was called by every body that calls it.
struct ShmProcess {
  ShmRank* rank = nullptr;
  std::function<void()> ready = {};
};
std::vector<ShmOutcome> RunShmProcesses(
    int size, const std::function<std::string(ShmProcess& self)>& body, int num_ready,
    const std::function<void(const std::vector<int>&)>& meanwhile);

}  // namespace cria::comm

#endif  // CRIA_TESTS_UNIT_COMM_SHM_SHM_RANKS_H_

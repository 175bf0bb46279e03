// Runs the ranks of a job on this machine, over the real rendezvous and transports: as threads (the
// sanitizers see all ranks) or as processes (which can be killed).
//
//   RunRankThreads({.ranks = 4}, [](comm::Communicator& world) { EXPECT_TRUE(...); });
//   for (const RankOutcome& outcome : RunRankProcesses({.ranks = 2}, body)) ...
//
// A rank that cannot join fails the test.

#ifndef CRIA_TESTS_SUPPORT_COMM_RANKS_H_
#define CRIA_TESTS_SUPPORT_COMM_RANKS_H_

#include <functional>
#include <string>
#include <vector>

#include "comm/api/communicator.h"
#include "comm/engine/world.h"

namespace cria {

struct RankOptions {
  int ranks = 2;
  // Which host each rank plays; empty: all on one.
  std::vector<int> host_of_rank = {};
  comm::TransportChoice transport = comm::TransportChoice::kAuto;
  comm::AlgorithmOverrides algorithms = {};
  double timeout_s = 60;
  debug::Observer* observer = nullptr;
  // The hook of each rank (engine/transport.h); may be empty.
  std::function<comm::StepHook(int rank)> step_hook = {};
  // The options of one rank, changed at will.
  std::function<void(int rank, comm::WorldOptions* options)> adjust = {};
};

// Each rank is a thread; returns when all bodies have.
void RunRankThreads(const RankOptions& options,
                    const std::function<void(comm::Communicator& world)>& body);

struct RankOutcome {
  bool reported = false;  // the body returned
  std::string report;     // what it returned
  int signal = 0;         // that ended the process, 0 for none
};

// Each rank is a process that ends with what `body` returns. `meanwhile` runs in the test's process
// once all have started, with the ranks' pids. Returns when each process is over or stopped;
// stopped ones, and those that are not over `limit_s` after the start, are killed (their outcome
// then has the signal 9). A report is shorter than 60 KB. Several threads may call it at once.
std::vector<RankOutcome> RunRankProcesses(
    const RankOptions& options, const std::function<std::string(comm::Communicator& world)>& body,
    const std::function<void(const std::vector<int>& pids)>& meanwhile = {}, double limit_s = 60);

}  // namespace cria

#endif  // CRIA_TESTS_SUPPORT_COMM_RANKS_H_

// Each rank killed (SIGKILL) and stopped (SIGSTOP) at each step of each collective, over shared
// memory, TCP and both: every survivor gets an error that names the culprit, within its deadline.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/str.h"
#include "comm/api/error.h"
#include "tests/support/collective_case.h"
#include "tests/support/comm_ranks.h"

namespace cria {
namespace {

using comm::OpKind;

constexpr OpKind kKinds[] = {OpKind::kAllReduce, OpKind::kReduce,        OpKind::kBroadcast,
                             OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll,
                             OpKind::kAllToAllV, OpKind::kGather,        OpKind::kScatter,
                             OpKind::kBarrier};
constexpr int kRanks = 3;
// Of an operation: long enough for a busy machine to finish one in which nobody dies.
constexpr double kTimeoutSeconds = 4;
constexpr double kLimitSeconds = 60;
// Jobs at once: they wait most of the time.
constexpr int kJobs = 12;

struct Scene {
  std::string name;
  std::vector<int> hosts = {};
  comm::TransportChoice transport = comm::TransportChoice::kAuto;
};

void PrintTo(const Scene& scene, std::ostream* out) { *out << scene.name; }

struct Death {
  OpKind kind = OpKind::kAllReduce;
  int64_t count = 0;
  int victim = 0;
  int step = 0;  // which Step call of the victim's operation ends it
  int signal = SIGKILL;
};

std::string Describe(const Death& death) {
  return StrCat(comm::Name(death.kind), " count ", death.count, ", rank ", death.victim,
                death.signal == SIGKILL ? " killed" : " stopped", " at step ", death.step);
}

RankOptions OptionsOf(const Scene& scene) {
  return {.ranks = kRanks,
          .host_of_rank = scene.hosts,
          .transport = scene.transport,
          .timeout_s = kTimeoutSeconds};
}

// What a victim reports whose operation had fewer steps this time: over TCP, how many messages a
// look finds depends on the moment.
constexpr char kLived[] = "lived";

// A rank's life: an operation that works, the fatal one, a barrier after it (for deaths at the
// end of an operation that the others could finish). Reports "ok" or the kind and culprit.
std::string Live(comm::Communicator& world, const Death& death, std::atomic<bool>* armed) {
  const CollectiveCase test{.kind = death.kind, .count = death.count, .root = 1};
  if (std::string error = CheckCollective(world, test); !error.empty()) return "first: " + error;
  *armed = true;
  const std::string error = CheckCollective(world, test);
  *armed = false;
  if (world.rank() == death.victim && error.empty()) return kLived;
  if (error.empty()) world.Barrier({.call = {.timeout_s = kTimeoutSeconds}}).Wait().IgnoreError();
  const Status failure = world.failure();
  if (failure.ok()) return error.empty() ? "ok" : error;
  const auto details = comm::GetCommError(failure);
  if (!details.has_value()) return Message(failure);
  return StrCat(details->culprit, " ", Message(failure));
}

// The number of steps of an operation on each rank, from a run in which nobody dies.
std::vector<int> CountSteps(const Scene& scene, const Death& death) {
  RankOptions options = OptionsOf(scene);
  auto armed = std::make_shared<std::atomic<bool>>(false);
  auto steps = std::make_shared<std::atomic<int>>(0);
  options.step_hook = [armed, steps](int) -> comm::StepHook {
    return [armed, steps](const char*) { *steps += *armed ? 1 : 0; };
  };
  std::vector<int> counts;
  for (const RankOutcome& outcome :
       RunRankProcesses(options, [&death, armed, steps](comm::Communicator& world) {
         const CollectiveCase test{.kind = death.kind, .count = death.count, .root = 1};
         if (std::string error = CheckCollective(world, test); !error.empty()) return error;
         *armed = true;
         if (std::string error = CheckCollective(world, test); !error.empty()) return error;
         *armed = false;
         const std::string report = std::to_string(*steps);
         world.Barrier().Wait().IgnoreError();
         return report;
       })) {
    EXPECT_TRUE(outcome.reported) << Describe(death);
    counts.push_back(std::atoi(outcome.report.c_str()));
    EXPECT_GT(counts.back(), 0) << Describe(death) << ": " << outcome.report;
  }
  return counts;
}

// What is wrong with how the survivors saw it; empty when nothing is.
std::string RunDeath(const Scene& scene, const Death& death) {
  RankOptions options = OptionsOf(scene);
  auto armed = std::make_shared<std::atomic<bool>>(false);
  auto steps = std::make_shared<std::atomic<int>>(0);
  options.step_hook = [&death, armed, steps](int rank) -> comm::StepHook {
    if (rank != death.victim) return nullptr;
    return [&death, armed, steps](const char*) {
      if (*armed && (*steps)++ == death.step) kill(getpid(), death.signal);
    };
  };
  const double start_s = RealClock()->MonotonicSeconds();
  const auto outcomes = RunRankProcesses(
      options,
      [&death, armed](comm::Communicator& world) { return Live(world, death, armed.get()); }, {},
      kLimitSeconds);
  const double seconds = RealClock()->MonotonicSeconds() - start_s;
  const RankOutcome& victim = outcomes[static_cast<size_t>(death.victim)];
  if (victim.reported) return victim.report;
  for (int rank = 0; rank < kRanks; ++rank) {
    const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
    if (rank == death.victim) continue;
    if (!outcome.reported) return StrCat("rank ", rank, " hung or died for ", seconds, " s");
    if (outcome.report.rfind(StrCat(death.victim, " "), 0) != 0) {
      return StrCat("rank ", rank, " does not blame the victim: ", outcome.report);
    }
  }
  return "";
}

class KillAnywhereTest : public testing::TestWithParam<Scene> {
 protected:
  void RunAll(const std::vector<Death>& deaths) {
    std::atomic<size_t> next{0};
    std::vector<std::string> errors(deaths.size());
    std::vector<std::thread> jobs;
    for (int j = 0; j < kJobs; ++j) {
      jobs.emplace_back([this, &deaths, &next, &errors] {
        for (size_t i = next++; i < deaths.size(); i = next++) {
          errors[i] = RunDeath(GetParam(), deaths[i]);
        }
      });
    }
    for (std::thread& job : jobs) job.join();
    std::cout << deaths.size() << " deaths" << std::endl;
    size_t num_lived = 0;
    for (size_t i = 0; i < deaths.size(); ++i) {
      num_lived += errors[i] == kLived ? 1 : 0;
      EXPECT_TRUE(errors[i].empty() || errors[i] == kLived)
          << Describe(deaths[i]) << ": " << errors[i];
    }
    std::cout << deaths.size() << " victims, " << num_lived << " lived" << std::endl;
    EXPECT_LT(num_lived, deaths.size() / 4);
  }

  std::vector<Death> EachStep(OpKind kind, int64_t count, int signal) {
    Death death{.kind = kind, .count = count, .signal = signal};
    const std::vector<int> steps = CountSteps(GetParam(), death);
    std::vector<Death> deaths;
    for (death.victim = 0; death.victim < kRanks; ++death.victim) {
      const int num_steps = steps[static_cast<size_t>(death.victim)];
      EXPECT_GT(num_steps, 0) << Describe(death);
      for (death.step = 0; death.step < num_steps; ++death.step) deaths.push_back(death);
    }
    return deaths;
  }
};

TEST_P(KillAnywhereTest, SurvivorsOfAKilledRankNameIt) {
  std::vector<Death> deaths;
  for (const OpKind kind : kKinds) {
    for (const Death& death : EachStep(kind, 1000, SIGKILL)) deaths.push_back(death);
  }
  for (const Death& death : EachStep(OpKind::kAllReduce, 1, SIGKILL)) deaths.push_back(death);
  for (const Death& death : EachStep(OpKind::kAllReduce, 700'000, SIGKILL)) {
    deaths.push_back(death);
  }
  RunAll(deaths);
}

TEST_P(KillAnywhereTest, SurvivorsOfAStoppedRankNameIt) {
  std::vector<Death> deaths;
  // Each takes the whole timeout, so of similar kinds one.
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kAllGather,
                            OpKind::kAllToAllV, OpKind::kBarrier}) {
    for (const Death& death : EachStep(kind, 1000, SIGSTOP)) deaths.push_back(death);
  }
  RunAll(deaths);
}

INSTANTIATE_TEST_SUITE_P(Scenes, KillAnywhereTest,
                         testing::Values(Scene{"Shm"},
                                         Scene{"Tcp", {}, comm::TransportChoice::kTcp},
                                         Scene{"TwoHosts", {0, 0, 1}}),
                         [](const testing::TestParamInfo<Scene>& info) { return info.param.name; });

}  // namespace
}  // namespace cria

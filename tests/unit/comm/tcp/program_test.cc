// The steps and messages that a plan becomes: both ends agree, steps keep their distance, sizes
// beyond 2^31 stay right. No sockets.

#include "comm/tcp/program.h"

#include <gtest/gtest.h>

#include <map>

#include "comm/plan/planner.h"

namespace cria::comm::tcp {
namespace {

Plan PlanOf(OpKind kind, Algorithm algorithm, int size, int rank, int64_t count) {
  GroupTopology topology;
  topology.host_of_rank.assign(static_cast<size_t>(size), 0);
  const auto plan = BuildPlan(
      {.kind = kind, .count = count, .topology = &topology, .rank = rank, .tcp_only = true},
      {{kind, algorithm}});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

// Addresses only: nothing is read or written.
std::byte* Fake(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

constexpr uint64_t kInput = uint64_t{1} << 45, kOutput = uint64_t{2} << 45;

void Build(Program* program, const Plan& plan, bool in_place) {
  OperationContext context{.plan = &plan};
  context.slots[0] = Fake(kInput);
  context.slots[1] = Fake(in_place ? kInput : kOutput);
  context.slots[2] = Fake(uint64_t{3} << 45);
  program->Build(context, plan.rank, plan.rounds);
}

TEST(ProgramTest, BothEndsExpectTheSameMessages) {
  constexpr int kSize = 6;
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kAllGather}) {
    for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kRing}) {
      for (const int64_t count : {int64_t{5}, int64_t{1} << 20}) {
        // By (from, to): bytes and rounds, as the sender and as the receiver see them.
        std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int>>> sent, expected;
        for (int rank = 0; rank < kSize; ++rank) {
          const Plan plan = PlanOf(kind, algorithm, kSize, rank, count);
          Program program;
          Build(&program, plan, false);
          for (const Peer& peer : program.peers()) {
            for (const auto& one : peer.out)
              sent[{rank, peer.rank}].push_back({one.bytes, one.round});
            for (const auto& one : peer.in) {
              expected[{peer.rank, rank}].push_back({one.bytes, one.round});
            }
          }
        }
        EXPECT_EQ(sent, expected) << Name(kind) << " " << Name(algorithm) << " " << count;
      }
    }
  }
}

// pmodels/mpich#2257: counts above 2^31.
TEST(ProgramTest, SizesAboveTwoToThe31StayExact) {
  for (const int64_t count : {(int64_t{1} << 31) - 1, int64_t{1} << 31, (int64_t{1} << 34) + 3}) {
    for (const int rank : {0, 2}) {
      const Plan plan = PlanOf(OpKind::kAllGather, Algorithm::kRing, 3, rank, count);
      Program program;
      Build(&program, plan, false);
      int64_t received = 0;
      for (const Peer& peer : program.peers()) {
        for (const auto& message : peer.in) received += message.bytes;
      }
      EXPECT_EQ(received, 2 * 4 * count);
      for (const Step& step : program.steps()) {
        EXPECT_EQ(step.count, count);
        const auto address = reinterpret_cast<uint64_t>(step.data);
        if (step.kind != StepKind::kReceive) continue;
        EXPECT_GE(address, kOutput);
        EXPECT_EQ((address - kOutput) % (4 * static_cast<uint64_t>(count)), 0u);
      }
    }
  }
}

// In place the second half of the ring overwrites what the first still sends: it follows at the
// distance that the first has gone.
TEST(ProgramTest, ALaterRoundFollowsWhatItOverwrites) {
  const int64_t count = 3 << 20;
  const Plan plan = PlanOf(OpKind::kAllReduce, Algorithm::kRing, 3, 1, count);
  Program program;
  Build(&program, plan, /*in_place=*/true);
  std::vector<Step>& steps = program.steps();
  int held = 0;
  for (size_t later = 0; later < steps.size(); ++later) {
    if (program.Allowed(static_cast<int>(later)) == steps[later].count) continue;
    ++held;
    // Whatever holds it back: when all before it are half way, it may go half way; when they are
    // done, to its end.
    for (size_t i = 0; i < later; ++i) steps[i].done = steps[i].count / 2;
    const int64_t half = program.Allowed(static_cast<int>(later));
    EXPECT_GE(half, steps[later].count / 2 - 1);
    EXPECT_LT(half, steps[later].count);
    for (size_t i = 0; i < later; ++i) steps[i].done = steps[i].count;
    EXPECT_EQ(program.Allowed(static_cast<int>(later)), steps[later].count);
    for (size_t i = 0; i < later; ++i) steps[i].done = 0;
    Build(&program, plan, /*in_place=*/true);
  }
  EXPECT_GT(held, 0);
}

}  // namespace
}  // namespace cria::comm::tcp

// The interpreter finds each way in which a plan can be wrong.
#include "comm/plan/interpreter.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cria::comm {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kCount = 4;

// An all_reduce on two ranks of one host: rank 0 sums the lower half, rank 1 the upper one.
std::vector<Plan> GoodPlans() {
  std::vector<Plan> plans;
  for (int rank = 0; rank < kRanks; ++rank) {
    Plan plan;
    plan.kind = OpKind::kAllReduce;
    plan.rank = rank;
    plan.size = kRanks;
    plan.count = kCount;
    plan.rounds.resize(1);
    for (int owner = 0; owner < kRanks; ++owner) {
      const int64_t at = 2 * owner;
      plan.rounds[0].tasks.push_back({.owner = owner,
                                      .count = 2,
                                      .sources = {{0, Slot::kInput, at}, {1, Slot::kInput, at}},
                                      .targets = {{0, Slot::kOutput, at}, {1, Slot::kOutput, at}}});
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

InterpreterJob Job(bool in_place) {
  static const GroupTopology topology = {.host_of_rank = {0, 0}};
  return JobOf({.kind = OpKind::kAllReduce, .count = kCount, .topology = &topology}, in_place);
}

// What the interpreter says of the good plans after `change`, which may alter all views alike.
std::string Verdict(const std::function<void(std::vector<Plan>*)>& change, bool in_place = false) {
  std::vector<Plan> plans = GoodPlans();
  change(&plans);
  return Message(RunPlans(plans, Job(in_place)));
}

using Plans = std::vector<Plan>;
Task& TaskOf(Plans* plans, size_t rank, size_t task) {
  return (*plans)[rank].rounds[0].tasks[task];
}
#define EXPECT_SAYS(verdict, words) EXPECT_NE((verdict).find(words), std::string::npos) << (verdict)

TEST(InterpreterTest, TakesAGoodPlan) {
  EXPECT_EQ(Verdict([](Plans*) {}), "");
  EXPECT_EQ(Verdict([](Plans*) {}, /*in_place=*/true), "");
}

TEST(InterpreterTest, FindsViewsThatDiffer) {
  EXPECT_SAYS(Verdict([](Plans* p) { TaskOf(p, 1, 0).count = 1; }), "that its owner does not");
  EXPECT_SAYS(Verdict([](Plans* p) { TaskOf(p, 1, 0).targets[1].offset = 1; }),
              "that its owner does not");
  EXPECT_SAYS(
      Verdict([](Plans* p) { (*p)[1].rounds[0].tasks.erase((*p)[1].rounds[0].tasks.begin()); }),
      "does not see a task of rank 0");
  EXPECT_SAYS(Verdict([](Plans* p) { (*p)[1].rounds.emplace_back(); }), "1's plan has 2 rounds");
  EXPECT_SAYS(Verdict([](Plans* p) { (*p)[1].digest = 1; }), "another digest");
  EXPECT_SAYS(Verdict([](Plans* p) { (*p)[1].rounds[0].link = LinkKind::kTcp; }), "another link");
  // Over TCP, messages of two tasks that two ranks see in different orders would be mixed up.
  EXPECT_SAYS(Verdict([](Plans* p) { std::swap(TaskOf(p, 1, 0), TaskOf(p, 1, 1)); }), "circle");
}

TEST(InterpreterTest, FindsMemoryThatIsNotShared) {
  std::vector<Plan> plans = GoodPlans();
  InterpreterJob job = Job(false);
  job.host_of_rank = {0, 1};
  EXPECT_SAYS(Message(RunPlans(plans, job)), "share no memory");
}

TEST(InterpreterTest, FindsElementsWrittenTwiceOrNever) {
  const auto all = [](const std::function<void(Task*)>& change, size_t task) {
    return [change, task](Plans* plans) {
      for (size_t rank = 0; rank < kRanks; ++rank) change(&TaskOf(plans, rank, task));
    };
  };
  EXPECT_SAYS(Verdict(all([](Task* t) { t->targets[0].offset = 1; }, 1)), "written twice");
  EXPECT_SAYS(Verdict(all([](Task* t) { t->count = 1; }, 1)), "is written 0 times");
  EXPECT_SAYS(Verdict(all([](Task* t) { t->targets[0].offset = 3; }, 1)), "is outside");
  EXPECT_SAYS(Verdict(all([](Task* t) { t->targets[0].slot = Slot::kInput; }, 1)), "writes rank 0");
}

TEST(InterpreterTest, FindsValuesThatAreMissingDoubledOrMixed) {
  const auto sources = [](std::vector<Region> regions) {
    return [regions](Plans* plans) {
      for (size_t rank = 0; rank < kRanks; ++rank) TaskOf(plans, rank, 1).sources = regions;
    };
  };
  EXPECT_SAYS(Verdict(sources({{0, Slot::kInput, 2}})), "of 1 ranks, not element 2 of all 2");
  EXPECT_SAYS(Verdict(sources({{0, Slot::kInput, 2}, {0, Slot::kInput, 2}})), "not element 2");
  EXPECT_SAYS(Verdict(sources({{0, Slot::kInput, 2}, {1, Slot::kInput, 1}})),
              "adds element 1 to element 2");
  EXPECT_SAYS(Verdict(sources({{0, Slot::kInput, 0}, {1, Slot::kInput, 0}})),
              "holds element 0 of 2 ranks, not element 2");
}

TEST(InterpreterTest, FindsReadsOfWhatIsNotThereYet) {
  EXPECT_SAYS(Verdict([](Plans* plans) {
                for (Plan& plan : *plans) {
                  plan.scratch_elements = 2;
                  plan.rounds[0].tasks[0].sources[0] = {0, Slot::kScratch, 0};
                }
              }),
              "read before it is written");
}

TEST(InterpreterTest, FindsBitsThatDifferBetweenRanks) {
  // Each rank sums for itself, in another order.
  std::vector<Plan> plans = GoodPlans();
  for (Plan& plan : plans) {
    for (int owner = 0; owner < kRanks; ++owner) {
      Task& task = plan.rounds[0].tasks[static_cast<size_t>(owner)];
      task.count = kCount;
      task.sources = {{owner, Slot::kInput, 0}, {1 - owner, Slot::kInput, 0}};
      task.targets = {{owner, Slot::kOutput, 0}};
    }
  }
  EXPECT_SAYS(Message(RunPlans(plans, Job(false))), "combined in another order");
}

TEST(InterpreterTest, FindsInputsOverwrittenInPlace) {
  // Right out of place: a round for each rank's output. In place the first destroys an input.
  std::vector<Plan> plans = GoodPlans();
  for (Plan& plan : plans) {
    plan.rounds.assign(2, Round());
    for (int owner = 0; owner < kRanks; ++owner) {
      plan.rounds[static_cast<size_t>(owner)].tasks.push_back(
          {.owner = owner,
           .count = kCount,
           .sources = {{0, Slot::kInput, 0}, {1, Slot::kInput, 0}},
           .targets = {{owner, Slot::kOutput, 0}}});
    }
  }
  EXPECT_EQ(Message(RunPlans(plans, Job(false))), "");
  EXPECT_SAYS(Message(RunPlans(plans, Job(true))), "overwritten in place");
  // In one round it is a race.
  for (Plan& plan : plans) {
    plan.rounds[0].tasks.push_back(plan.rounds[1].tasks[0]);
    plan.rounds.pop_back();
  }
  EXPECT_SAYS(Message(RunPlans(plans, Job(true))), "read by another task of this round");
}

TEST(InterpreterTest, KeepsPartialsAndFinishedValuesApart) {
  EXPECT_SAYS(Verdict([](Plans* plans) {
                for (Plan& plan : *plans) {
                  plan.rounds.insert(plan.rounds.begin(), Round());
                  plan.rounds[0].tasks.push_back({.owner = 0,
                                                  .count = 2,
                                                  .sources = {{0, Slot::kInput, 0}},
                                                  .targets = {{0, Slot::kOutput, 0}}});
                  plan.rounds[1].tasks[0].sources[0] = {0, Slot::kOutput, 0};
                  if (plan.rank == 1) plan.rounds[0].tasks.clear();
                }
              }),
              "finished");
}

}  // namespace
}  // namespace cria::comm

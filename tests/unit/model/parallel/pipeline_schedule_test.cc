#include "model/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/str.h"

namespace cria::model {
namespace {

void ForAllShapes(const std::function<void(const PipelineShape&, int micro_batches)>& body) {
  for (int pp = 1; pp <= 8; ++pp) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int group = 0; group <= 8; ++group) {
        for (int micro_batches = 1; micro_batches <= 24; ++micro_batches) {
          SCOPED_TRACE(StrCat("pp ", pp, " chunks ", chunks, " group ", group, " micro-batches ",
                              micro_batches));
          body({.pp = pp, .chunks = chunks, .group = group}, micro_batches);
        }
      }
    }
  }
}

ScheduleSimulation SimulationOf(const PipelineShape& shape, int micro_batches) {
  return Simulate(shape, micro_batches, MakeSchedule(shape, micro_batches));
}

// "F0.1 B0.1": forward of micro-batch 0 in chunk 1, and so on.
std::string Text(const std::vector<PipelineAction>& actions) {
  std::string text;
  for (const PipelineAction& a : actions) {
    text += StrCat(text.empty() ? "" : " ", a.forward ? "F" : "B", a.micro_batch, ".", a.chunk);
  }
  return text;
}

TEST(PipelineScheduleTest, EveryShapeIsCompleteAndRunsToItsEnd) {
  ForAllShapes([](const PipelineShape& shape, int micro_batches) {
    EXPECT_EQ(SimulationOf(shape, micro_batches).problem, "");
  });
}

// Llama 3's formula, which others reach only where micro-batches are a multiple of pp.
TEST(PipelineScheduleTest, BubbleIsIdealFromAsManyMicroBatchesAsStagesOn) {
  ForAllShapes([](const PipelineShape& shape, int micro_batches) {
    if (micro_batches < shape.pp) return;
    const double ideal = (shape.pp - 1.0) / (shape.chunks * micro_batches);
    EXPECT_NEAR(SimulationOf(shape, micro_batches).bubble, ideal, 1e-12);
  });
}

// One group goes round the ring once for each chunk, there and back: the last micro-batch leaves
// when all before it have.
TEST(PipelineScheduleTest, FewerMicroBatchesThanStagesTakeOneRoundForEachChunk) {
  ForAllShapes([](const PipelineShape& shape, int micro_batches) {
    if (micro_batches >= shape.pp) return;
    EXPECT_EQ(SimulationOf(shape, micro_batches).time,
              3 * (shape.chunks * shape.pp + micro_batches - 1));
  });
}

// Megatron-LM holds up to (chunks - 1) * group + 2 (pp - 1 - rank) + 1 (interleaved), pp - rank
// (not interleaved).
TEST(PipelineScheduleTest, HoldsNoMoreThanTheFormulaSays) {
  ForAllShapes([](const PipelineShape& shape, int micro_batches) {
    const PipelineSchedule schedule = MakeSchedule(shape, micro_batches);
    const int wanted = std::max(shape.group, shape.pp);
    // Equal groups: the largest exceeds the wanted size only by what is left of a group under pp.
    const int group = std::min(micro_batches, wanted + micro_batches % wanted);
    int most = 0;
    for (int rank = 0; rank < shape.pp; ++rank) {
      const auto r = static_cast<size_t>(rank);
      int in_flight = 0, most_of_rank = 0;
      for (const PipelineAction& action : schedule.ranks[r]) {
        in_flight += action.forward ? 1 : -1;
        most_of_rank = std::max(most_of_rank, in_flight);
      }
      EXPECT_LE(most_of_rank, (shape.chunks - 1) * group + shape.pp - rank);
      EXPECT_EQ(schedule.slots[r], most_of_rank);
      most = std::max(most, most_of_rank);
    }
    EXPECT_EQ(SimulationOf(shape, micro_batches).max_in_flight, most);
    if (micro_batches % wanted == 0) {
      EXPECT_EQ(most,
                std::min((shape.chunks - 1) * wanted + shape.pp, shape.chunks * micro_batches));
    }
  });
}

TEST(PipelineScheduleTest, DepthFirstHoldsLessThanBreadthFirst) {
  const ScheduleSimulation depth = SimulationOf({.pp = 4, .chunks = 2, .group = 4}, 16);
  const ScheduleSimulation breadth = SimulationOf({.pp = 4, .chunks = 2, .group = 16}, 16);
  EXPECT_EQ(depth.max_in_flight, 8);     // (2 - 1) * 4 + 4
  EXPECT_EQ(breadth.max_in_flight, 20);  // (2 - 1) * 16 + 4
  EXPECT_EQ(depth.time, breadth.time);
}

TEST(PipelineScheduleTest, MoreChunksIdleLess) {
  EXPECT_NEAR(SimulationOf({.pp = 4, .chunks = 1}, 8).bubble, 3.0 / 8, 1e-12);
  EXPECT_NEAR(SimulationOf({.pp = 4, .chunks = 2}, 8).bubble, 3.0 / 16, 1e-12);
  // The paper's 405B on 16,384 GPUs: 16 stages, 16 micro-batches.
  EXPECT_NEAR(SimulationOf({.pp = 16, .chunks = 8}, 16).bubble, 15.0 / 128, 1e-12);
}

TEST(PipelineScheduleTest, OneRankTakesOneAfterTheOther) {
  const PipelineSchedule schedule = MakeSchedule({}, 3);
  EXPECT_EQ(Text(schedule.ranks[0]), "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0");
  EXPECT_EQ(schedule.slots, (std::vector<int>{1}));
}

TEST(PipelineScheduleTest, OneForwardOneBackward) {
  const PipelineSchedule schedule = MakeSchedule({.pp = 2}, 3);
  EXPECT_EQ(Text(schedule.ranks[0]), "F0.0 F1.0 B0.0 F2.0 B1.0 B2.0");
  EXPECT_EQ(Text(schedule.ranks[1]), "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0");
  EXPECT_EQ(schedule.slots, (std::vector<int>{2, 1}));
  EXPECT_EQ(schedule.ranks[0][3].slot, 0);  // micro-batch 2 where 0 was
}

TEST(PipelineScheduleTest, ChunksTakeTurns) {
  const PipelineSchedule schedule = MakeSchedule({.pp = 2, .chunks = 2, .group = 2}, 4);
  EXPECT_EQ(Text(schedule.ranks[0]),
            "F0.0 F1.0 F0.1 F1.1 B0.1 F2.0 B1.1 F3.0 B0.0 F2.1 B1.0 F3.1 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(Text(schedule.ranks[1]),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

// Five are no four and one: the one would go round the ring alone, twice.
TEST(PipelineScheduleTest, WhatIsLeftJoinsTheOthers) {
  const PipelineSchedule schedule = MakeSchedule({.pp = 4, .chunks = 2, .group = 4}, 5);
  EXPECT_EQ(Text({schedule.ranks[0].begin(), schedule.ranks[0].begin() + 7}),
            "F0.0 F1.0 F2.0 F3.0 F4.0 F0.1 F1.1");
}

class BrokenScheduleTest : public testing::Test {
 protected:
  BrokenScheduleTest() : schedule_(MakeSchedule(kShape, 4)) {}

  std::string Problem() const { return Simulate(kShape, 4, schedule_).problem; }
  std::vector<PipelineAction>& Rank(size_t rank) { return schedule_.ranks[rank]; }

  static constexpr PipelineShape kShape = {.pp = 2, .chunks = 2, .group = 2};
  PipelineSchedule schedule_;
};

TEST_F(BrokenScheduleTest, MissingAndRepeatedActions) {
  Rank(1).pop_back();
  EXPECT_EQ(Problem(), "rank 1: 15 actions of 16");
  Rank(1).push_back(Rank(1).front());
  EXPECT_EQ(Problem(), "rank 1: forward of micro-batch 0 in chunk 0: twice");
  Rank(1).back() = {.forward = false, .chunk = 0, .micro_batch = 4, .slot = 0};
  EXPECT_EQ(Problem(), "rank 1: backward of micro-batch 4 in chunk 0: no such micro-batch");
  Rank(1).back().chunk = 2;
  EXPECT_EQ(Problem(), "rank 1: backward of micro-batch 4 in chunk 2: no such chunk");
}

TEST_F(BrokenScheduleTest, BackwardBeforeForward) {
  std::swap(Rank(1)[2], Rank(1)[3]);
  EXPECT_EQ(Problem(), "rank 1: backward of micro-batch 0 in chunk 1: before its forward");
}

TEST_F(BrokenScheduleTest, SlotsThatOverlap) {
  Rank(0)[1].slot = 0;
  EXPECT_EQ(Problem(),
            "rank 0: forward of micro-batch 1 in chunk 0: slot 0 has micro-batch 0 of chunk 0");
  Rank(0)[1].slot = 9;
  EXPECT_EQ(Problem(), "rank 0: forward of micro-batch 1 in chunk 0: no slot 9");
}

TEST_F(BrokenScheduleTest, SidesOfALinkThatDiffer) {
  // Rank 1 may well take micro-batch 1 first; rank 0 does not send it first.
  std::swap(Rank(1)[0], Rank(1)[1]);
  EXPECT_EQ(Problem(),
            "message 0 is the result of rank 0: forward of micro-batch 0 in chunk 0, taken for "
            "rank 1: forward of micro-batch 1 in chunk 0");
}

TEST_F(BrokenScheduleTest, RanksThatWaitForEachOther) {
  // Rank 0 wants the gradient of micro-batch 0 before it sends micro-batch 1, without which rank 1
  // does not begin with backwards.
  schedule_ = MakeSchedule({.pp = 2}, 2);
  schedule_.ranks[0] = {{.forward = true, .micro_batch = 0, .slot = 0},
                        {.forward = false, .micro_batch = 0, .slot = 0},
                        {.forward = true, .micro_batch = 1, .slot = 1},
                        {.forward = false, .micro_batch = 1, .slot = 1}};
  schedule_.ranks[1] = {{.forward = true, .micro_batch = 0, .slot = 0},
                        {.forward = true, .micro_batch = 1, .slot = 1},
                        {.forward = false, .micro_batch = 0, .slot = 0},
                        {.forward = false, .micro_batch = 1, .slot = 1}};
  schedule_.slots = {2, 2};
  EXPECT_EQ(Simulate({.pp = 2}, 2, schedule_).problem,
            "these wait for ever: rank 0: backward of micro-batch 0 in chunk 0; "
            "rank 1: forward of micro-batch 1 in chunk 0");
}

}  // namespace
}  // namespace cria::model

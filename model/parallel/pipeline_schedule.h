// The order in which a pipeline rank does its micro-batches: interleaved 1F1B, as Llama 3 runs it.
//
//   const PipelineSchedule schedule = MakeSchedule({.pp = 4, .chunks = 2, .group = 4}, 8);
//   for (const PipelineAction& action : schedule.ranks[p]) ...
//
// Micro-batches go through a rank's chunks in groups: `group` neighbouring ones through chunk 0,
// then the same ones through chunk 1, and so on; the last group may be smaller. Backward the same
// with the chunks reversed. After a warm-up of forwards, forward and backward alternate. Any number
// of micro-batches, fewer than stages included (then all forwards come before the backwards).
// group = pp is depth-first (least memory), group = micro-batches is breadth-first.
//
// On a link between two stages both sides meet the micro-batches in the same order, so a link needs
// no tags. A slot is memory for one micro-batch's activations in one chunk: slots are numbered by
// chunk, and a slot is free again once its backward is done.
// Thread-safe: pure functions. Source: Llama 3 (arXiv 2407.21783), 3.3.2; Narayanan et al., 2021.

#ifndef CRIA_MODEL_PARALLEL_PIPELINE_SCHEDULE_H_
#define CRIA_MODEL_PARALLEL_PIPELINE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cria::model {

struct PipelineShape {
  int pp = 1;
  int chunks = 1;  // of each rank
  int group = 0;   // neighbouring micro-batches a chunk takes at once; 0: pp
};

struct PipelineAction {
  bool forward = true;
  int chunk = 0;        // of this rank
  int micro_batch = 0;  // of the step, from 0
  int slot = 0;         // of the chunk

  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

struct PipelineSchedule {
  // By pipeline rank, in order of execution.
  std::vector<std::vector<PipelineAction>> ranks;
  // By pipeline rank and chunk: how many micro-batches are in flight at most.
  std::vector<std::vector<int>> slots;
};

// `micro_batches` >= 1.
PipelineSchedule MakeSchedule(const PipelineShape& shape, int micro_batches);

// Runs the schedule on paper: every action waits for what it needs, a forward costs 1, a
// backward 2.
struct ScheduleSimulation {
  std::string problem;    // empty: complete, each micro-batch once through each stage, no deadlock
  double time = 0;        // until the last action's end
  double bubble = 0;      // idle share of that time over work: (time - work) / work
  int max_in_flight = 0;  // activations of one rank at most, in chunks
};
ScheduleSimulation Simulate(const PipelineShape& shape, int micro_batches,
                            const PipelineSchedule& schedule);

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_PIPELINE_SCHEDULE_H_

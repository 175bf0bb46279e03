// The order in which a pipeline rank does its micro-batches: interleaved 1F1B, as Llama 3 runs it.
//
//   const PipelineSchedule schedule = MakeSchedule({.pp = 4, .chunks = 2, .group = 4}, 8);
//   for (const PipelineAction& action : schedule.ranks[p]) ...
//
// Micro-batches go through a rank's chunks in groups: the first group's through chunk 0, then the
// same ones through chunk 1, and so on, then the next group. Backward the same with the chunks
// reversed. After a warm-up of forwards, forward and backward alternate:
//
//   rank 0   F0 F1 f0 f1 -- b0 b1 F2 ..      2 ranks, 2 chunks (F f, B b in the second), group 2
//
// Micro-batches are cut into as many equal groups as come nearest `group` without going under pp,
// where a rank would wait for the ring to come round. So the pipeline idles for no longer than
// (pp - 1) / (chunks * micro_batches) of its work for any number of micro-batches from pp on.
// Fewer than pp are one group. group = pp is depth-first (least memory), group = micro-batches is
// breadth-first. With one chunk the group makes no difference.
//
// A slot is memory for one micro-batch's activations in one chunk, with what comes in and goes out:
// slots are numbered by chunk, taken in turn, and free again once the backward pass is done.
//
// On a link between two stages both sides meet the micro-batches in the same order, so a link needs
// no tags. No rank waits for ever, even where a send ends only when its receive is posted, and
// breadth-first too, provided that a rank
//   - waits for a send only before it uses the slot again,
//   - posts receives ahead, in the link's order, each as soon as its memory is free: an input's
//   with
//     its slot, a gradient's (which comes into the place of the chunk's result) when that has left.
//
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
  int group = 0;   // neighbouring micro-batches a chunk takes at once; under pp: pp
};

struct PipelineAction {
  bool forward = true;
  int chunk = 0;        // of this rank
  int micro_batch = 0;  // of the step, from 0
  int slot = 0;         // of the rank

  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

struct PipelineSchedule {
  // By pipeline rank, in order of execution.
  std::vector<std::vector<PipelineAction>> ranks;
  // By pipeline rank: how many micro-batches its chunks have in flight at most.
  std::vector<int> slots;
};

// `micro_batches` >= 1.
PipelineSchedule MakeSchedule(const PipelineShape& shape, int micro_batches);

// Runs the schedule on paper: every action waits for what it needs, receives are posted as said
// above, a forward costs 1, a backward 2, messages nothing.
struct ScheduleSimulation {
  // Empty, or what is wrong: an action missing, twice or before what it needs; a slot taken twice;
  // a link whose two sides differ in order; ranks that wait for each other. Times are 0 then.
  std::string problem;
  double time = 0;        // until the last action's end
  double bubble = 0;      // idle share of that time over work: (time - work) / work
  int max_in_flight = 0;  // activations of one rank at most, in chunks
};
ScheduleSimulation Simulate(const PipelineShape& shape, int micro_batches,
                            const PipelineSchedule& schedule);

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_PIPELINE_SCHEDULE_H_

// `cria bench train --layouts`: two ranks with one thread each beside one process with two, the
// same global batch: dp 2 with each kind of sharding, tp 2, cp 2, pp 2.
//
//   return RunLayoutsBench({.rounds = 5}, arguments, stdout, stderr);
//
// Every run is the train loop itself, a few steps of it. The losses of each layout must be those of
// one process before anything is timed. All variants run once a round, in turns; a round's value is
// the median of its steps, and what is printed the median of the rounds, ratios those within a
// round. Communication and overlap are debug/stream_times.h's, of rank 0; memory is the most of any
// rank's, planned (loop/memory.h) and measured as what the run added to the process.
// Single-threaded.

#ifndef CRIA_TRAINER_BENCH_LAYOUTS_BENCH_H_
#define CRIA_TRAINER_BENCH_LAYOUTS_BENCH_H_

#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

struct LayoutsBenchOptions {
  std::string config = "layouts_bench";  // a job's file, or the name of one in configs/jobs
  std::vector<std::string> set = {};     // "key=value" over it
  int rounds = 5;
  bool json = false;        // the result as JSON on `out`, all else on `notes`
  std::string folder = {};  // of a rank that the command has started: the one that they share
};

// Writes the result to `out` and progress to `notes`. `arguments` make this program run the same
// benchmark again, without a folder. Internal when a layout's losses are not one process's.
Status RunLayoutsBench(const LayoutsBenchOptions& options,
                       const std::vector<std::string>& arguments, std::FILE* out, std::FILE* notes);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_LAYOUTS_BENCH_H_

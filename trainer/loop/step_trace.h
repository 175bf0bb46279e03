// The trace of a few steps of a job, as one file for all ranks.
//
//   StepTrace trace({.path = "step.json", .first = 3, .last = 4}, RealClock());
//   ... trace.trace() goes to the model and to the observer of the communicators ...
//   trace.Begin(n);                                   // before step n of this run, from 1
//   CRIA_RETURN_IF_ERROR(trace.End(n, world));        // after it
//   CRIA_RETURN_IF_ERROR(trace.Finish(world));        // after the last
//
// Every rank of the job calls the same; after the last chosen step rank 0 gathers all traces and
// writes the file. Single-threaded. Errors: the communicator's, the file's.

#ifndef CRIA_TRAINER_LOOP_STEP_TRACE_H_
#define CRIA_TRAINER_LOOP_STEP_TRACE_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "comm/api/communicator.h"
#include "debug/trace.h"
#include "model/parallel/mesh.h"

namespace cria::trainer {

struct StepTraceOptions {
  std::string path = {};        // empty: nothing is traced
  int64_t first = 3, last = 4;  // of the steps that this run takes, from 1
};

class StepTrace {
 public:
  // `clock` is borrowed.
  StepTrace(const StepTraceOptions& options, Clock* clock);

  debug::Trace* trace() { return &trace_; }
  // What this rank's process is called.
  void SetRank(const model::Layout& layout, int rank);

  void Begin(int64_t step);
  // `world` null: one rank.
  Status End(int64_t step, comm::Communicator* world);
  // Writes what there is of a run that ended before the last chosen step.
  Status Finish(comm::Communicator* world);

 private:
  const StepTraceOptions options_;
  debug::Trace trace_;
  bool has_steps_ = false, written_ = false;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_STEP_TRACE_H_

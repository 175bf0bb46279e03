// How much of a step a rank spends in communication, by group, and how much of that was hidden
// behind computing. An observer of the rank's communicators; feeds a trace where there is one.
//
//   StreamTimes times(RealClock(), {.trace = &trace, .order = {"tp", "cp", "replicas"}});
//   comm::WorldOptions options{.observer = &times};
//   times.BeginStep();
//   ... the step, on this thread ...
//   const StepTimes& step = times.EndStep();
//   step.share();    // of the step, in which there was communication: 0.3
//   step.overlap();  // of that, behind computing: 0.8
//
// At each moment of a step the computing thread (the one that called BeginStep) is blocked or not:
// it is from the start to the end of an operation that it runs itself, and inside Work::Wait. An
// operation runs from when its turn has come until its end: waiting for a peer that is late
// counts, as in every profiler that sees one rank only. Then, of the wall time of the step:
//
//   communication   some operation runs, or the thread is blocked
//   exposed         the thread is blocked
//   overlapped      some operation runs and the thread is not blocked
//
// so communication = exposed + overlapped. By group: running (its operations run one after
// another), exposed (blocked for one of its own) and overlapped (one of its own runs, the thread is
// not blocked). Groups run side by side, so their running times may add up to more than
// communication. That a thread is not blocked does not mean that it gets a core: where ranks have
// fewer cores than threads, overlapped communication costs computing time too.
//
// Thread-safe: BeginStep and EndStep from the computing thread. Cost of an event: a clock reading,
// a lock, a loop over the groups; nothing is allocated after a group's first operation.

#ifndef CRIA_DEBUG_STREAM_TIMES_H_
#define CRIA_DEBUG_STREAM_TIMES_H_

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "debug/observer.h"
#include "debug/trace.h"

namespace cria::debug {

struct StreamTime {
  std::string group;
  int64_t num_operations = 0;  // that ended in the step
  int64_t bytes = 0;           // of their inputs, or of the outputs where these are larger
  double running_s = 0, exposed_s = 0, overlapped_s = 0;
};

struct StepTimes {
  double step_s = 0;
  double exposed_s = 0, overlapped_s = 0;
  std::vector<StreamTime> streams;  // in the order of `order`, then of their first operation

  double communication_s() const { return exposed_s + overlapped_s; }
  double share() const { return step_s > 0 ? communication_s() / step_s : 0; }
  // 1 for a step without communication: nothing was in the way.
  double overlap() const { return communication_s() > 0 ? overlapped_s / communication_s() : 1; }
};

class StreamTimes : public Observer {
 public:
  struct Options {
    Trace* trace = nullptr;  // borrowed; null: none
    // Names of groups in the order of their tracks; others come after them.
    std::vector<std::string> order = {};
  };

  // `clock` is borrowed, and the trace's where there is one.
  StreamTimes(Clock* clock, Options options);

  void BeginStep() CRIA_EXCLUDES(mu_);
  // Of the time since BeginStep. Valid until the next EndStep.
  const StepTimes& EndStep() CRIA_EXCLUDES(mu_);

  void OnEnqueue(const OperationEvent& event) override CRIA_EXCLUDES(mu_);
  void OnStart(const OperationEvent& event) override CRIA_EXCLUDES(mu_);
  void OnEnd(const OperationEvent& event, const Status& status) override CRIA_EXCLUDES(mu_);
  void OnWaitStart(uint64_t group_id) override CRIA_EXCLUDES(mu_);
  void OnWaitEnd(uint64_t group_id) override CRIA_EXCLUDES(mu_);

 private:
  struct Stream {
    uint64_t group_id = 0;
    int order = 0;
    int track = 0;  // of the trace
    bool running = false;
    double start_s = 0;
    StreamTime time;
  };
  static constexpr size_t kNone = ~size_t{0};

  // The stream of a group, made where it is new; Find: kNone there.
  Stream& StreamOf(const OperationEvent& event) CRIA_REQUIRES(mu_);
  size_t Find(uint64_t group_id) const CRIA_REQUIRES(mu_);
  bool OnComputingThread() const CRIA_REQUIRES(mu_);
  // Books the time since the last event.
  void Advance(double now_s) CRIA_REQUIRES(mu_);
  void Block(uint64_t group_id, double now_s) CRIA_REQUIRES(mu_);
  void Unblock(double now_s) CRIA_REQUIRES(mu_);
  // Waits in slices (WaitFor again and again) are one event of the trace: it is kept back until
  // something else happens.
  void FlushWait() CRIA_REQUIRES(mu_);

  // Constant after construction.
  Clock* const clock_;
  const Options options_;
  // Guarded by mu_.
  Mutex mu_;
  std::thread::id computing_ CRIA_GUARDED_BY(mu_);
  std::vector<Stream> streams_ CRIA_GUARDED_BY(mu_);
  size_t blocked_ CRIA_GUARDED_BY(mu_) = kNone;  // which stream the computing thread waits for
  double blocked_since_s_ CRIA_GUARDED_BY(mu_) = 0;
  TraceEvent wait_ CRIA_GUARDED_BY(mu_);  // kept back; without a name: none
  size_t wait_stream_ CRIA_GUARDED_BY(mu_) = kNone;
  int64_t wait_span_ CRIA_GUARDED_BY(mu_) = 0;
  int num_running_ CRIA_GUARDED_BY(mu_) = 0;
  double step_start_s_ CRIA_GUARDED_BY(mu_) = 0;
  double last_s_ CRIA_GUARDED_BY(mu_) = 0;
  double exposed_s_ CRIA_GUARDED_BY(mu_) = 0;
  double overlapped_s_ CRIA_GUARDED_BY(mu_) = 0;
  // Of the computing thread.
  StepTimes result_;
};

}  // namespace cria::debug

#endif  // CRIA_DEBUG_STREAM_TIMES_H_

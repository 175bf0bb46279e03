// What a communicator tells about each operation: when it was enqueued, started and ended, and when
// somebody waited for it.
//
//   class Printer : public debug::Observer {
//     void OnEnd(const debug::OperationEvent& event, const Status& status) override { ... }
//   };
//   Printer printer;
//   comm::WorldOptions options{.observer = &printer};
//
// The flight recorder and the watchdog are observers; `debug` never includes `comm`, so the names
// come as text. Calls come from the thread that runs the operation (a caller's, or the
// communicator's own for asynchronous ones): an observer is thread-safe, returns at once, never
// blocks and never calls the communicator back. It outlives the communicator and the handles of its
// operations.
// Cost when there is none: one comparison.

#ifndef CRIA_DEBUG_OBSERVER_H_
#define CRIA_DEBUG_OBSERVER_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace cria::debug {

// One operation on one rank. The views live as long as the call.
struct OperationEvent {
  std::string_view group;  // the communicator's name: "world", "tp"
  uint64_t group_id = 0;   // the same on all ranks of the group, unique among groups
  int rank = 0;            // in the group
  int group_size = 0;
  uint64_t sequence = 0;       // counts the operations of this group from 1; point to point too
  std::string_view operation;  // "all_reduce"
  std::string_view dtype;      // "float32"; empty for a barrier
  std::string_view algorithm;  // "flat", "ring"; empty until it is chosen
  int64_t count = 0;           // elements, as the caller gave them
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int peer = -1;  // root of a rooted operation, partner of a send or recv
};

class Observer {
 public:
  virtual ~Observer() = default;
  // The caller handed the operation over.
  virtual void OnEnqueue(const OperationEvent& event) = 0;
  // Its turn has come: data may move from now on.
  virtual void OnStart(const OperationEvent& event) = 0;
  // It is over, with this outcome.
  virtual void OnEnd(const OperationEvent& event, const Status& status) = 0;
  // The calling thread begins, and ends, to wait for an asynchronous operation of the group that is
  // not over (Work::Wait). A call without `async` waits from its start to its end: OnStart and
  // OnEnd come from the caller's thread then.
  virtual void OnWaitStart(uint64_t group_id) { (void)group_id; }
  virtual void OnWaitEnd(uint64_t group_id) { (void)group_id; }
};

}  // namespace cria::debug

#endif  // CRIA_DEBUG_OBSERVER_H_

// What a trace must be to open in Perfetto and in chrome://tracing: the rules of the Trace Event
// Format, and what Perfetto's user interface (v52) was seen to lose or to misplace.
//
//   EXPECT_EQ(ProblemOfTrace(*ReadJsonFile("step.json")), "");
//
// An object with "traceEvents", a list; each event has ph, pid and tid; an X has a name, a ts and a
// dur of 0 or more; the X events of a track lie apart or inside one another to the nanosecond (of
// two that overlap Perfetto drops one); each track with events has a thread_name and each process a
// process_name; arrows leave from and arrive at a moment inside an event of their track, go forward
// in time, and an end has a start.
//
// No pid or tid is 0 (Perfetto's idle thread, one for all processes), a tid is of one process (it
// moves threads otherwise), a process's first track has its pid for a tid (the main thread is shown
// first) and tids rise as sort indices do (Perfetto sorts by the former, chrome://tracing by the
// latter).

#ifndef CRIA_TESTS_SUPPORT_TRACE_CHECK_H_
#define CRIA_TESTS_SUPPORT_TRACE_CHECK_H_

#include <string>

#include "base/json.h"

namespace cria {

// The first thing that is wrong; empty when nothing is.
std::string ProblemOfTrace(const Json& trace);

}  // namespace cria

#endif  // CRIA_TESTS_SUPPORT_TRACE_CHECK_H_

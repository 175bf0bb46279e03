// What a trace must be to open in Perfetto and in chrome://tracing: the rules of the Trace Event
// Format that its readers rely on.
//
//   EXPECT_EQ(ProblemOfTrace(*ReadJsonFile("step.json")), "");
//
// An object with "traceEvents", a list; each event has ph, pid and tid; an X has a name, a ts and a
// dur of 0 or more; the X events of a track lie apart or inside one another; each track with events
// has a thread_name and each process a process_name; arrows leave from and arrive at a moment
// inside an event of their track, go forward in time, and an end has a start.

#ifndef CRIA_TESTS_SUPPORT_TRACE_CHECK_H_
#define CRIA_TESTS_SUPPORT_TRACE_CHECK_H_

#include <string>

#include "base/json.h"

namespace cria {

// The first thing that is wrong; empty when nothing is.
std::string ProblemOfTrace(const Json& trace);

}  // namespace cria

#endif  // CRIA_TESTS_SUPPORT_TRACE_CHECK_H_

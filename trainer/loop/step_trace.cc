#include "trainer/loop/step_trace.h"

#include <vector>

#include "base/log.h"
#include "base/str.h"
#include "trainer/loop/gather_texts.h"

namespace cria::trainer {
StepTrace::StepTrace(const StepTraceOptions& options, Clock* clock)
    : options_(options), trace_(clock) {}

void StepTrace::SetRank(const model::Layout& layout, int rank) {
  const model::Coordinates at = CoordinatesOf(layout, rank);
  trace_.NameRank(
      rank, StrCat("rank ", rank, " (tp", at.tp, " cp", at.cp, " pp", at.pp, " dp", at.dp, ")"));
}

void StepTrace::Begin(int64_t step) {
  if (options_.path.empty() || step < options_.first || step > options_.last) return;
  has_steps_ = true;
  trace_.SetRecording(true);
}

Status StepTrace::End(int64_t step, comm::Communicator* world) {
  trace_.SetRecording(false);
  return step == options_.last ? Finish(world) : OkStatus();
}

Status StepTrace::Finish(comm::Communicator* world) {
  if (options_.path.empty() || written_) return OkStatus();
  written_ = true;
  const bool writes = world == nullptr || world->rank() == 0;
  if (!has_steps_) {
    if (writes) LogWarning("no trace: the run ended before its step ", options_.first);
    return OkStatus();
  }
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> events, GatherTexts(trace_.Events(), world));
  if (!writes) return OkStatus();
  CRIA_RETURN_IF_ERROR(Annotate(debug::WriteTraceFile(options_.path, events), "the trace"));
  LogInfo("trace of ", events.size(), events.size() == 1 ? " rank in " : " ranks in ",
          options_.path, " (open it at ui.perfetto.dev)");
  return OkStatus();
}

}  // namespace cria::trainer

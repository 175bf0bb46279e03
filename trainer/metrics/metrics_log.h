// metrics.jsonl: a JSON line a step, for plots and scripts. Called by the train loop.
//
//   CRIA_ASSIGN_OR_RETURN(auto log, MetricsLog::Open("run/metrics.jsonl", resumed_step));
//   CRIA_RETURN_IF_ERROR(log->Append(metrics));
//   CRIA_RETURN_IF_ERROR(log->Sync());  // before a checkpoint is saved
//
//   {"step":7,"tokens":14336,"loss":6.02,"lr":3e-04,"grad_norm":1.4,
//    "tokens_per_s":9000.0,"mfu":0.41}
//
// with "comm_share" and "comm_overlap" where there are other ranks, and "val_loss" where the step
// was evaluated. A value that is not finite is null: every line is valid JSON. Each line is one
// write: a killed run loses at most the line it was writing. Single-threaded.

#ifndef CRIA_TRAINER_METRICS_METRICS_LOG_H_
#define CRIA_TRAINER_METRICS_METRICS_LOG_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "trainer/metrics/step_metrics.h"

namespace cria::trainer {

// The line without its newline. Numbers have the fewest digits that read back equal.
std::string FormatMetricsLine(const StepMetrics& metrics);

class MetricsLog {
 public:
  // Continues the file after `last_step` (0 or -1 for a new run): lines of later steps are cut off,
  // so that no step appears twice, and so is the torn line of a killed run. Creates the file when
  // there is none. DataLoss, with the line, when a line that belongs to the kept part is no line of
  // ours: the file is left as it is. Cost: reads the file up to last_step.
  static StatusOr<std::unique_ptr<MetricsLog>> Open(const std::string& path, int64_t last_step);

  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // After an error (a full disk) the file ends with the line before, and the next call may succeed.
  Status Append(const StepMetrics& metrics);

  // Makes all lines so far durable.
  Status Sync();

 private:
  MetricsLog(std::string path, int fd, uint64_t size);

  const std::string path_;
  const int fd_;
  uint64_t size_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_METRICS_METRICS_LOG_H_

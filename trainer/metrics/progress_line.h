// The trainer's progress line: on a terminal one line that is rewritten, off it plain lines.
//
//   ProgressPrinter printer(stderr, RealClock());
//   printer.Print(metrics);  // after each step
//   printer.Finish();        // before anything else is printed, and at the end
//
//   step 120/1000 | loss 3.4512 | lr 3.00e-04 | grad-norm 1.23 | 12.30 K tok/s | MFU 41.2% (43.0%
//   full) | comm 25.0% (80.0% hidden) | 2m 03s left
//
// "comm" where the job has several ranks.
// Single-threaded. A failing write is not noticed: progress is not worth a run.

#ifndef CRIA_TRAINER_METRICS_PROGRESS_LINE_H_
#define CRIA_TRAINER_METRICS_PROGRESS_LINE_H_

#include <cstdio>
#include <string>

#include "base/clock.h"
#include "trainer/metrics/step_metrics.h"

namespace cria::trainer {

// ASCII, no newline. MFU first with attention counted causally, then in full; "-" where not finite.
std::string FormatProgressLine(const StepMetrics& metrics);

class ProgressPrinter {
 public:
  enum class Style { kAuto, kTerminal, kPlain };  // kAuto asks isatty

  // `out` and `clock` are borrowed.
  ProgressPrinter(std::FILE* out, Clock* clock, Style style = Style::kAuto);

  // On a terminal: rewrites the line, at most ten times a second, cut to the terminal's width; an
  // evaluated step stays and a new line begins. Off it: a line of its own, at most one a second.
  // The first step, the last and the evaluated ones are always shown.
  void Print(const StepMetrics& metrics);

  // Ends a line that is being rewritten.
  void Finish();

 private:
  std::FILE* const out_;
  Clock* const clock_;
  const bool terminal_;
  bool printed_any_ = false;
  bool line_open_ = false;
  double last_seconds_ = 0;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_METRICS_PROGRESS_LINE_H_

#include "trainer/metrics/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

#include "base/str.h"

namespace cria::trainer {
namespace {

constexpr double kTerminalSecondsMin = 0.1;
constexpr double kPlainSecondsMin = 1;

std::string Percent(double fraction) {
  return std::isfinite(fraction) ? StrFormat("%.1f%%", 100 * fraction) : "-";
}

// Columns of the terminal; 0 when unknown.
size_t TerminalColumns(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace

std::string FormatProgressLine(const StepMetrics& metrics) {
  std::string line =
      StrCat("step ", metrics.step, "/", metrics.steps, StrFormat(" | loss %.4f", metrics.loss),
             StrFormat(" | lr %.2e", metrics.lr), StrFormat(" | grad-norm %.3g", metrics.grad_norm),
             " | ", HumanCount(metrics.tokens_per_s), " tok/s | MFU ", Percent(metrics.mfu), " (",
             Percent(metrics.mfu_full), " full)");
  if (metrics.comm_share.has_value()) {
    line += StrCat(" | comm ", Percent(*metrics.comm_share), " (",
                   Percent(metrics.comm_overlap.value_or(1)), " hidden)");
  }
  if (metrics.seconds_left >= 0) line += StrCat(" | ", HumanSeconds(metrics.seconds_left), " left");
  if (metrics.val_loss.has_value()) line += StrFormat(" | val-loss %.4f", *metrics.val_loss);
  return line;
}

ProgressPrinter::ProgressPrinter(std::FILE* out, Clock* clock, Style style)
    : out_(out),
      clock_(clock),
      terminal_(style == Style::kAuto ? ::isatty(::fileno(out)) == 1 : style == Style::kTerminal) {}

void ProgressPrinter::Print(const StepMetrics& metrics) {
  const double now = clock_->MonotonicSeconds();
  const bool stays = metrics.val_loss.has_value();
  const bool must = !printed_any_ || stays || metrics.step >= metrics.steps;
  const double seconds_min = terminal_ ? kTerminalSecondsMin : kPlainSecondsMin;
  if (!must && now - last_seconds_ < seconds_min) return;
  printed_any_ = true;
  last_seconds_ = now;
  std::string line = FormatProgressLine(metrics);
  if (!terminal_) {
    std::fprintf(out_, "%s\n", line.c_str());
    std::fflush(out_);
    return;
  }
  // A line that wraps could not be rewritten. One that stays may wrap.
  const size_t columns = TerminalColumns(out_);
  if (!stays && columns > 1 && line.size() >= columns) line.resize(columns - 1);
  // Back to the first column, the line, and the rest of the old one erased.
  std::fprintf(out_, "\r%s\x1b[K%s", line.c_str(), stays ? "\n" : "");
  std::fflush(out_);
  line_open_ = !stays;
}

void ProgressPrinter::Finish() {
  if (!line_open_) return;
  std::fputc('\n', out_);
  std::fflush(out_);
  line_open_ = false;
}

}  // namespace cria::trainer

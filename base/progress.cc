#include "base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/str.h"

namespace cria {
namespace {

constexpr int kBarColumns = 22;
constexpr double kTerminalPeriodSeconds = 0.1;
constexpr double kPlainPeriodSeconds = 10;

std::string Amount(double value, const std::string& unit) {
  if (unit == "B") return HumanBytes(value);
  return StrCat(HumanCount(value), unit.empty() ? "" : " ", unit);
}

size_t TerminalColumns(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

Progress::Progress(std::FILE* out, std::string label, double total, std::string unit, Clock* clock)
    : out_(out),
      label_(std::move(label)),
      total_(total),
      unit_(std::move(unit)),
      clock_(clock),
      is_terminal_(::isatty(::fileno(out)) != 0),
      start_(clock->MonotonicSeconds()),
      next_draw_(start_ + (is_terminal_ ? 0 : kPlainPeriodSeconds)) {}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', out_);
}

void Progress::Update(double done, std::string_view suffix) {
  const double now = clock_->MonotonicSeconds();
  done_ = done;
  suffix_ = suffix;
  if (now < next_draw_) return;
  Draw(now);
  next_draw_ = now + (is_terminal_ ? kTerminalPeriodSeconds : kPlainPeriodSeconds);
}

void Progress::Finish() {
  if (finished_) return;
  finished_ = true;
  Draw(clock_->MonotonicSeconds());
  if (line_open_) std::fputc('\n', out_);
  line_open_ = false;
}

std::string Progress::Line(double now) const {
  const double elapsed = now - start_;
  const double rate = elapsed > 0 ? done_ / elapsed : 0;
  std::string line = label_;
  if (total_ > 0) {
    const double part = std::clamp(done_ / total_, 0.0, 1.0);
    if (is_terminal_) {
      const auto full = static_cast<size_t>(part * kBarColumns);
      std::string bar(full, '=');
      if (full < kBarColumns) bar += '>';
      bar.resize(kBarColumns, ' ');
      line += StrCat(" [", bar, "]");
    }
    line += StrFormat(" %3.0f%%", part * 100);
    line += StrCat("  ", Amount(done_, unit_), " of ", Amount(total_, unit_));
  } else {
    line += StrCat("  ", Amount(done_, unit_));
  }
  line += StrCat("  ", Amount(rate, unit_), "/s");
  if (finished_) {
    line += StrCat("  in ", HumanSeconds(elapsed));
  } else if (total_ > 0 && rate > 0) {
    line += StrCat("  ", HumanSeconds(std::max(0.0, total_ - done_) / rate), " left");
  }
  if (!suffix_.empty()) line += StrCat("  ", suffix_);
  return line;
}

void Progress::Draw(double now) {
  std::string line = Line(now);
  if (is_terminal_) {
    // A line longer than the terminal would wrap, and "\r" could not come back to its start.
    line.resize(std::min(line.size(), TerminalColumns(out_) - 1));
    std::fprintf(out_, "\r\x1b[K%s", line.c_str());
    line_open_ = true;
  } else {
    std::fprintf(out_, "%s\n", line.c_str());
  }
  std::fflush(out_);
}

}  // namespace cria

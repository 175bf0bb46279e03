// A progress bar on a terminal, a plain line every ten seconds off it.
//
//   Progress progress(stderr, "prepare", total_bytes, "B", RealClock());
//   while (...) progress.Update(done_bytes, StrCat(num_documents, " documents"));
//   progress.Finish();
//
//   prepare [==========>          ]  52%  2.1 GiB of 4.0 GiB  61.2 MiB/s  31s left  1200 documents
//
// Call Update as often as you like: it draws ten times a second at most. A total of 0 means
// unknown: no bar, no time left. The unit "B" is shown as KiB, MiB, ...; any other one ("docs")
// follows the count.
// Single-threaded. The FILE and the clock must outlive it.

#ifndef CRIA_BASE_PROGRESS_H_
#define CRIA_BASE_PROGRESS_H_

#include <cstdio>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace cria {

class Progress {
 public:
  Progress(std::FILE* out, std::string label, double total, std::string unit, Clock* clock);
  // Ends an unfinished bar's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total is done; `suffix` ends the line.
  void Update(double done, std::string_view suffix = "");

  // Draws the last state as a line that stays.
  void Finish();

 private:
  std::string Line(double now) const;
  void Draw(double now);

  std::FILE* const out_;
  const std::string label_;
  const double total_;
  const std::string unit_;
  Clock* const clock_;
  const bool is_terminal_;
  const double start_;
  double next_draw_;
  double done_ = 0;
  std::string suffix_;
  bool line_open_ = false;
  bool finished_ = false;
};

}  // namespace cria

#endif  // CRIA_BASE_PROGRESS_H_

// The default corpus: the King James Bible, as Debian's package bible-kjv prints it.
//
// Called by trainer/data/prepare.h when no input is named.
//
//   CRIA_ASSIGN_OR_RETURN(std::vector<std::string> chapters, ReadBible({}));   // 1,189 of them
//
// The text lies compressed in the package, so its program is run once:
//
//   $ bible -f Gen1:1-Rev22:21
//   Ge1:1 In the beginning God created the heaven and the earth.
//   Ge1:2 And the earth was without form, and void; ...
//
// A chapter becomes a document, a verse a line; the labels ("Ge1:1 ") are removed. 4.0 MB of text.
// Errors: FailedPrecondition, naming the package, when the program is missing; DeadlineExceeded;
// DataLoss, with the line, when what it prints looks different.
// Thread-safe.

#ifndef CRIA_TRAINER_DATA_BIBLE_H_
#define CRIA_TRAINER_DATA_BIBLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace cria::trainer {

struct BibleOptions {
  std::string program = "bible";  // looked up in PATH
  double deadline_s = 60;
  Clock* clock = RealClock();
};

StatusOr<std::vector<std::string>> ReadBible(const BibleOptions& options);

// The chapters in the program's output, without labels. DataLoss for a line without one.
StatusOr<std::vector<std::string>> ParseVerses(std::string_view output);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_BIBLE_H_

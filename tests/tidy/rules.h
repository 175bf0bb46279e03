// The house rules that a text check can hold (tests/tidy/README.md says why each is there).
//
//   for (const SourceFile& file : LoadSources(root)) problems += CheckDependencies(file);
//
// Each check returns one line a problem, "path:line: what is wrong", and nothing for a clean file.
// Thread-safe, pure but for LoadSources.

#ifndef CRIA_TESTS_TIDY_RULES_H_
#define CRIA_TESTS_TIDY_RULES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria::tidy {

struct SourceFile {
  std::string path;  // from the repository's root: "base/str.h"
  std::string text;
};

using Problems = std::vector<std::string>;

struct Include {
  int line;          // from 1
  std::string path;  // between the quotes or brackets
  bool quoted;
};

// Every C++, CUDA, Python, shell and Bazel file below `root`, sorted by path. Folders whose name
// starts with "." or "bazel-" and runs/ are left out.
StatusOr<std::vector<SourceFile>> LoadSources(const std::string& root);

// The text with comments, string and character literals turned into spaces; lines stay.
std::string BlankCommentsAndStrings(std::string_view text);

std::vector<Include> IncludesOf(const SourceFile& file);

// DESIGN.md's table of who may include whom.
Problems CheckDependencies(const SourceFile& file);

// Calls that break determinism, libraries that end the process, sleeps in tests.
Problems CheckBannedCalls(const SourceFile& file);

// Headers of third parties stay where one wrapper needs them, and out of our headers.
Problems CheckHeavyHeaders(const SourceFile& file);

// CRIA_<PATH>_H_, opened, defined and closed.
Problems CheckIncludeGuard(const SourceFile& file);

// A file does one thing: 700 lines at most, 100 columns.
Problems CheckLength(const SourceFile& file);

// The headers that no source includes before anything else. Of the others, the build has proved
// already that they compile alone.
std::vector<std::string> HeadersNotProvedByTheBuild(const std::vector<SourceFile>& files);

// Compiles each header alone, twice in one source, with g++ in `root`. Two at a time.
Problems CompileAlone(const std::string& root, const std::vector<std::string>& headers);

}  // namespace cria::tidy

#endif  // CRIA_TESTS_TIDY_RULES_H_

#include "comm/conformance/conformance_command.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/json.h"
#include "base/str.h"
#include "comm/bench/board.h"
#include "comm/bench/join.h"
#include "comm/conformance/case.h"
#include "comm/conformance/runner.h"

namespace cria::comm {
namespace {

struct Flags {
  std::vector<std::string> impls = {"cria"};
  std::vector<std::string> filters;
  std::vector<int> ranks;
  bool json = false;
  // A rank process.
  std::string rank_case;
  std::string rank_folder;
};

bool Matches(const Case& c, const std::vector<std::string>& filters) {
  if (filters.empty()) return true;
  for (const std::string& filter : filters) {
    if (std::string(c.name).find(filter) != std::string::npos || filter == StrCat(c.row)) {
      return true;
    }
  }
  return false;
}

void PrintMatrixRow(std::FILE* out, const Case& c, const std::vector<CaseResult>& results) {
  std::fprintf(out, "%3d  %-20s", c.row, c.name);
  for (const CaseResult& result : results) std::fprintf(out, " %-5s", Name(result.verdict));
  std::fprintf(out, " %s (%s)\n", c.what, c.reports);
}

// Row 35 is a way of building, no case.
constexpr char kTsan[] =
    " 35  thread_sanitizer      the flag protocols under TSAN: ./cria test --config=tsan "
    "//tests/unit/comm/...\n";

Status RunSuite(const Flags& flags, bool* failed) {
  std::FILE* const out = flags.json ? stderr : stdout;
  std::fprintf(out, "row  %-20s", "name");
  for (const std::string& impl : flags.impls) std::fprintf(out, " %-5s", impl.c_str());
  std::fprintf(out, " what must hold (public reports)\n");
  Json rows = Json::array();
  std::vector<int> passed(flags.impls.size()), run(flags.impls.size());
  std::string reasons;
  for (const Case& c : AllCases()) {
    if (!Matches(c, flags.filters)) continue;
    std::vector<CaseResult> results;
    for (size_t i = 0; i < flags.impls.size(); ++i) {
      const CaseResult result = RunCase(c, flags.impls[i], flags.ranks);
      passed[i] += result.verdict == Verdict::kPass;
      run[i] += result.verdict != Verdict::kSkip;
      *failed = *failed || result.verdict == Verdict::kFail;
      if (!result.why.empty()) {
        reasons += StrCat("  ", flags.impls[i], " ", Name(result.verdict), " ", c.row, " ", c.name,
                          ": ", result.why, "\n");
      }
      rows.push_back({{"name", c.name},
                      {"impl", flags.impls[i]},
                      {"result", Name(result.verdict)},
                      {"why", result.why},
                      {"row", c.row},
                      {"reports", c.reports},
                      {"what", c.what},
                      {"seconds", result.seconds}});
      results.push_back(result);
    }
    PrintMatrixRow(out, c, results);
    std::fflush(out);
  }
  if (flags.filters.empty()) std::fputs(kTsan, out);
  std::fprintf(out, "\n%s", reasons.c_str());
  for (size_t i = 0; i < flags.impls.size(); ++i) {
    std::fprintf(out, "%s: %d of %d pass\n", flags.impls[i].c_str(), passed[i], run[i]);
  }
  if (rows.empty()) return InvalidArgumentError("no case matches --filter");
  if (flags.json) {
    CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(rows, 1));
    std::printf("%s\n", text.c_str());
  }
  return OkStatus();
}

}  // namespace

void AddConformanceCommand(CLI::App* app, int* exit_code) {
  CLI::App* const command = app->add_subcommand(
      "conformance", "Public bug reports as tests of any library, each in fresh processes");
  const auto flags = std::make_shared<Flags>();
  std::vector<std::string> names = ImplementationNames();
  names.push_back("all");
  command->add_option("--impl", flags->impls, "cria, mpi, gloo, with commas, or all: the matrix")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command->add_option("--filter", flags->filters, "Parts of names, or numbers of rows, with commas")
      ->delimiter(',');
  command->add_option("--ranks", flags->ranks, "Numbers of ranks instead of each case's own")
      ->delimiter(',')
      ->check(CLI::Range(1, Board::kRanksMax));
  command->add_flag("--json", flags->json, "The rows as JSON, the table on standard error");
  command->add_option("--rank-case", flags->rank_case)->group("");
  command->add_option("--rank-folder", flags->rank_folder)->group("");
  command->callback([flags, exit_code] {
    bool failed = false;
    Status status;
    if (!flags->rank_case.empty()) {
      status = RunCaseRank(flags->rank_case, flags->impls[0], flags->rank_folder);
    } else {
      if (flags->impls[0] == "all") flags->impls = ImplementationNames();
      status = RunSuite(*flags, &failed);
    }
    if (!status.ok()) {
      std::fprintf(stderr, "cria comm conformance: %s\n", Message(status).c_str());
    }
    *exit_code = status.ok() ? failed : ExitCode(status);
  });
}

}  // namespace cria::comm

#include "comm/conformance/runner.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "comm/bench/launch.h"

namespace cria::comm {
namespace {

constexpr char kPassed[] = "pass";
constexpr char kSkipped[] = "skip ";
constexpr char kFailed[] = "fail ";

std::string ResultPath(const std::string& folder, int rank) {
  return JoinPath(folder, StrCat("result.", rank));
}

// One line, not too long.
std::string Brief(std::string text) {
  constexpr size_t kLength = 300;
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > kLength) text = text.substr(0, kLength) + "...";
  return text;
}

// The last words of the processes, for those that ended without a result.
std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of("\n -");
  if (end == std::string::npos) return "";
  const size_t start = text.find_last_of('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - (start + 1) + 1);
}

CaseResult Judge(const Case& c, int ranks, const std::string& folder, const LaunchResult& launch) {
  CaseResult result;
  for (int r = 0; r < ranks; ++r) {
    const auto text = ReadFile(ResultPath(folder, r));
    if (!text.ok()) {
      // Those that die on purpose have no result.
      if (r >= ranks - c.dies && result.verdict != Verdict::kFail) continue;
      if (result.verdict == Verdict::kFail) continue;
      result.verdict = Verdict::kFail;
      result.why = launch.timed_out
                       ? StrCat("hung: rank ", r, " was not done after ", c.limit_s, " s")
                       : StrCat("crashed: ", launch.message, "; ", LastLine(launch.text));
    } else if (text->rfind(kFailed, 0) == 0) {
      // What a rank found is better than that another one hung for it.
      result.verdict = Verdict::kFail;
      result.why = StrCat(ranks, " ranks: ", text->substr(sizeof(kFailed) - 1));
      break;
    } else if (text->rfind(kSkipped, 0) == 0 && result.verdict == Verdict::kPass) {
      result.verdict = Verdict::kSkip;
      result.why = text->substr(sizeof(kSkipped) - 1);
    }
  }
  result.why = Brief(result.why);
  return result;
}

StatusOr<CaseResult> RunOnce(const Case& c, const std::string& impl, int ranks) {
  CRIA_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Create());
  LaunchOptions options = {.ranks = ranks,
                           .mpirun = impl == "mpi",
                           .arguments = {"conformance", "--impl", impl, "--rank-case", c.name,
                                         "--rank-folder", scratch.path()}};
  options.limit_s = c.limit_s;
  // A rank that fails may leave the others in a wait that their own time-outs end.
  options.grace_s = c.dies > 0 ? c.limit_s : 10;
  options.capture = true;
  CRIA_ASSIGN_OR_RETURN(const LaunchResult launch, Launch(options));
  return Judge(c, ranks, scratch.path(), launch);
}

}  // namespace

const char* Name(Verdict verdict) {
  return verdict == Verdict::kPass ? "pass" : verdict == Verdict::kFail ? "fail" : "skip";
}

CaseResult RunCase(const Case& c, const std::string& impl, const std::vector<int>& ranks) {
  const bool means_something =
      c.impls.empty() || std::any_of(c.impls.begin(), c.impls.end(),
                                     [&impl](const char* name) { return impl == name; });
  if (!means_something) {
    return {.verdict = Verdict::kSkip, .why = "does not run with " + impl};
  }
  const double start_s = RealClock()->MonotonicSeconds();
  CaseResult result;
  for (const int n : ranks.empty() ? c.ranks : ranks) {
    auto once = RunOnce(c, impl, n);
    result =
        once.ok() ? *once : CaseResult{.verdict = Verdict::kFail, .why = Message(once.status())};
    if (result.verdict != Verdict::kPass) break;
  }
  result.seconds = RealClock()->MonotonicSeconds() - start_s;
  return result;
}

Status RunCaseRank(const std::string& name, const std::string& impl, const std::string& folder) {
  const std::vector<Case> cases = AllCases();
  const auto c = std::find_if(cases.begin(), cases.end(),
                              [&name](const Case& one) { return name == one.name; });
  if (c == cases.end()) return InvalidArgumentError("no case \"", name, "\"");
  CRIA_ASSIGN_OR_RETURN(const RankIdentity identity, PrepareRank());
  CaseContext context = {.impl = impl, .identity = identity, .folder = folder};
  CRIA_ASSIGN_OR_RETURN(Board board, Board::Open(JoinPath(folder, "board"), context.rank(),
                                                 context.size(), c->limit_s));
  context.board = &board;
  Joined joined;
  Status status;
  if (!c->joins_itself) {
    auto made = context.Join(c->limit_s / 2);
    status = made.status();
    if (made.ok()) joined = std::move(made).value();
    context.world = joined.world.get();
    // Nobody ends, and closes its connections, while another is still joining.
    if (status.ok()) status = board.Barrier();
  }
  if (status.ok()) status = c->body(context);
  std::string outcome = kPassed;
  if (status.code() == StatusCode::kUnimplemented) outcome = kSkipped + Message(status);
  if (!status.ok() && status.code() != StatusCode::kUnimplemented) {
    outcome = kFailed + Message(status);
  }
  // Not atomic on disk but whole for the reader, which waits for our end.
  std::FILE* const file = std::fopen(ResultPath(folder, context.rank()).c_str(), "w");
  if (file == nullptr) return InternalError("cannot write the result into ", folder);
  std::fputs(outcome.c_str(), file);
  std::fclose(file);
  // The others may still need this rank; those that failed have left, so not for long.
  constexpr double kLeaveSeconds = 3;
  board.set_timeout_s(kLeaveSeconds);
  if (c->dies == 0) board.Barrier().IgnoreError();
  return OkStatus();
}

}  // namespace cria::comm

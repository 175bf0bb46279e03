#include "comm/bench/bench_rank.h"

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/str.h"
#include "comm/bench/board.h"
#include "comm/bench/contestants.h"
#include "comm/bench/launch.h"
#include "comm/bench/measure.h"
#include "comm/bench/report.h"

namespace cria::comm {
namespace {

// A library may wait for ever (MPI's blocking calls do): no size takes longer than the time-out
// for each of its runs together.
class Alarm {
 public:
  explicit Alarm(double seconds) : seconds_(static_cast<unsigned>(std::ceil(seconds))) {
    struct sigaction action = {};
    action.sa_handler = [](int) {
      constexpr char kText[] = "cria comm bench: a rank made no progress until its time-out (-T)\n";
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
      _exit(1);
    };
    sigaction(SIGALRM, &action, nullptr);
    Rearm();
  }
  ~Alarm() { alarm(0); }
  void Rearm() const { alarm(seconds_); }

 private:
  const unsigned seconds_;
};

std::vector<std::string> Facts(const BenchOptions& options, double flag_flight_s) {
  std::string impls;
  for (const std::string& impl : options.impls) impls += StrCat(impls.empty() ? "" : ", ", impl);
  std::vector<std::string> facts = {
      StrCat(impls, "; ", options.ranks, " ranks on ", std::thread::hardware_concurrency(),
             " cores; medians of ", options.iterations, " rounds, libraries in turns"),
      StrFormat("bound: the bytes that must move, moved by a plain loop, and one flag flight of "
                "%.0f ns",
                flag_flight_s * 1e9)};
  if (!options.split.empty()) facts.push_back(StrCat("groups at once: ", options.split));
  return facts;
}

struct Sweep {
  OpKind op;
  DataType dtype;
  ReduceOp redop;
  int64_t bytes;
};

std::vector<Sweep> SweepsOf(const BenchOptions& options) {
  std::vector<Sweep> sweeps;
  for (const OpKind op : options.ops) {
    for (const DataType dtype : options.dtypes) {
      if (op == OpKind::kBarrier && dtype != options.dtypes[0]) continue;
      if (Reduces(op) && !Reducible(dtype)) continue;
      for (const ReduceOp redop : options.redops) {
        if (!Reduces(op) && redop != options.redops[0]) continue;
        for (const int64_t bytes : SizesOf(options)) {
          if (op == OpKind::kBarrier && bytes != options.min_bytes) continue;
          sweeps.push_back({op, dtype, redop, bytes});
        }
      }
    }
  }
  return sweeps;
}

}  // namespace

Status RunBenchRank(const BenchOptions& options, const std::string& folder) {
  CRIA_ASSIGN_OR_RETURN(const RankIdentity identity, PrepareRank());
  const Alarm alarm(options.timeout_s);
  CRIA_ASSIGN_OR_RETURN(Board board, Board::Open(JoinPath(folder, "board"), identity.rank,
                                                 identity.size, options.timeout_s));
  CRIA_ASSIGN_OR_RETURN(auto contestants, Contestants::Join(options, identity, folder));
  CRIA_ASSIGN_OR_RETURN(const double flight_s, board.FlagFlightSeconds());
  const bool prints = identity.rank == 0;
  std::FILE* const out = options.json ? stderr : stdout;
  if (prints) PrintHeader(out, Facts(options, flight_s));
  Measurer measurer(&options, &board, contestants.get(), flight_s);
  std::vector<BenchRow> all;
  int64_t wrong = 0;
  OpKind last = OpKind::kGroup;
  for (int cycle = 0; cycle < options.cycles; ++cycle) {
    for (const Sweep& sweep : SweepsOf(options)) {
      alarm.Rearm();
      CRIA_ASSIGN_OR_RETURN(const auto rows,
                            measurer.Measure(sweep.op, sweep.dtype, sweep.redop, sweep.bytes));
      if (prints && sweep.op != last && options.ops.size() > 1) {
        std::fprintf(out, "# %s\n", sweep.op == OpKind::kSend ? "sendrecv" : Name(sweep.op));
      }
      last = sweep.op;
      for (const BenchRow& row : rows) {
        if (prints) PrintRow(out, row);
        all.push_back(row);
        wrong += std::max<int64_t>(row.out_of_place.wrong, 0);
        wrong += std::max<int64_t>(row.in_place.wrong, 0);
      }
    }
  }
  if (prints) {
    std::fprintf(out, "# wrong elements: %lld\n", static_cast<long long>(wrong));
    CRIA_ASSIGN_OR_RETURN(const std::string json, RowsAsJson(all));
    if (options.json) std::printf("%s\n", json.c_str());
    if (!options.json_file.empty()) {
      CRIA_RETURN_IF_ERROR(WriteFileAtomic(options.json_file, json + "\n"));
    }
  }
  CRIA_RETURN_IF_ERROR(board.Barrier());
  if (wrong > 0) return InternalError(wrong, " elements were wrong");
  return OkStatus();
}

}  // namespace cria::comm

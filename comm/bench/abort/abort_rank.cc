#include "comm/bench/abort/abort_rank.h"

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "comm/api/communicator.h"
#include "comm/api/types.h"
#include "comm/bench/board.h"
#include "comm/bench/join.h"
#include "comm/bench/launch.h"
#include "comm/bench/report.h"
#include "comm/bench/verifier.h"

namespace cria::comm {
namespace {

constexpr double kTimeoutSeconds = 30;  // of an operation: an abort that does not arrive
constexpr char kReason[] = "abort-bench";

// The same on all processes of a machine.
double Now() { return RealClock()->MonotonicSeconds(); }

struct Trial {
  OpKind op = OpKind::kAllReduce;
  int number = 0;

  // Combinations change fastest, then the wait.
  bool by_thread() const { return (number & 1) != 0; }
  bool first_use() const { return (number & 2) != 0; }
  bool async() const { return (number & 4) != 0; }
  int delay_ms() const { return number * 23 % 61; }
};

struct Buffers {
  explicit Buffers(const Verifier& verifier)
      : input(static_cast<size_t>(verifier.input_elements() * ByteSize(verifier.shape().dtype))),
        output(static_cast<size_t>(verifier.output_elements() * ByteSize(verifier.shape().dtype))) {
  }
  std::vector<std::byte> input, output;
};

class AbortRank {
 public:
  AbortRank(const AbortTrials& trials, Board* board, Communicator* world)
      : trials_(trials), board_(*board), world_(*world) {}

  // The waits of all ranks and trials of an operation that were under way at the abort, in ms.
  StatusOr<std::vector<double>> WaitsOf(OpKind op) {
    std::vector<double> waits_ms;
    for (int number = 0; number < trials_.trials; ++number) {
      CRIA_RETURN_IF_ERROR(Run({.op = op, .number = number}, &waits_ms));
    }
    return waits_ms;
  }

 private:
  bool stays_away() const { return world_.rank() == world_.size() - 1; }

  CollectiveShape ShapeOf(OpKind op) const {
    CollectiveShape shape = {.kind = op};
    if (op != OpKind::kBarrier) shape.count = trials_.bytes / ByteSize(shape.dtype);
    // Where data comes from the root alone, it is the one that stays away.
    if (op == OpKind::kBroadcast || op == OpKind::kScatter) shape.root = world_.size() - 1;
    return shape;
  }

  double Abort(Communicator* group, const Trial& trial) const {
    poll(nullptr, 0, trial.delay_ms());
    const double now_s = Now();
    group->Abort(kReason);
    return now_s;
  }

  // When this rank's call began and ended; zeros when it did not wait until the abort.
  struct Span {
    double begin_s = 0;
    double end_s = 0;
  };

  StatusOr<Span> Wait(Communicator* group, const Trial& trial, const Verifier& verifier,
                      Buffers* buffers) {
    Span span = {.begin_s = Now()};
    const Status status =
        verifier.Run(group, buffers->input.data(), buffers->output.data(), {.async = trial.async()})
            .Wait();
    span.end_s = Now();
    if (status.ok()) return Span{};
    if (status.code() == StatusCode::kCancelled) return span;
    return Annotate(status, StrCat(Name(trial.op), ", trial ", trial.number));
  }

  Status Run(const Trial& trial, std::vector<double>* waits_ms) {
    NewGroupOptions options;
    options.name = StrCat(Name(trial.op), trial.number);
    for (int rank = 0; rank < world_.size(); ++rank) options.ranks.push_back(rank);
    CRIA_ASSIGN_OR_RETURN(const auto group, world_.NewGroup(options));
    group->SetTimeout(kTimeoutSeconds);
    const Verifier verifier(ShapeOf(trial.op), world_.rank(), world_.size());
    Buffers buffers(verifier);
    if (!trial.first_use()) CRIA_RETURN_IF_ERROR(group->Barrier().Wait());
    CRIA_RETURN_IF_ERROR(board_.Barrier());
    double abort_s = 0;
    Span span;
    if (stays_away()) {
      if (!trial.by_thread()) abort_s = Abort(group.get(), trial);
    } else {
      std::thread aborter([&] {
        if (trial.by_thread() && world_.rank() == 0) abort_s = Abort(group.get(), trial);
      });
      const StatusOr<Span> waited = Wait(group.get(), trial, verifier, &buffers);
      aborter.join();
      CRIA_ASSIGN_OR_RETURN(span, waited);
    }
    CRIA_ASSIGN_OR_RETURN(abort_s, board_.Max(abort_s));
    CRIA_ASSIGN_OR_RETURN(const std::vector<double> begins, board_.Gather(span.begin_s));
    CRIA_ASSIGN_OR_RETURN(const std::vector<double> ends, board_.Gather(span.end_s));
    for (size_t i = 0; i < ends.size(); ++i) {
      // On a busy machine a rank may call only after the abort.
      if (ends[i] > 0) waits_ms->push_back((ends[i] - std::max(abort_s, begins[i])) * 1e3);
    }
    return OkStatus();
  }

  const AbortTrials trials_;
  Board& board_;
  Communicator& world_;
};

}  // namespace

std::string AbortRowsPath(const std::string& folder) { return JoinPath(folder, "abort_rows"); }

Status RunAbortRank(const AbortTrials& trials, const std::string& folder) {
  CRIA_ASSIGN_OR_RETURN(const RankIdentity identity, PrepareRank());
  CRIA_ASSIGN_OR_RETURN(Board board, Board::Open(JoinPath(folder, "board"), identity.rank,
                                                 identity.size, 2 * kTimeoutSeconds));
  CRIA_ASSIGN_OR_RETURN(
      const Joined joined,
      JoinImplementation({.impl = "cria", .identity = identity, .folder = folder}));
  CRIA_RETURN_IF_ERROR(board.Barrier());
  AbortRank rank(trials, &board, joined.world.get());
  Json rows = Json::array();
  for (const OpKind op :
       {OpKind::kAllReduce, OpKind::kReduce, OpKind::kBroadcast, OpKind::kAllGather,
        OpKind::kAllGatherV, OpKind::kReduceScatter, OpKind::kReduceScatterV, OpKind::kAllToAll,
        OpKind::kAllToAllV, OpKind::kGather, OpKind::kScatter, OpKind::kSend, OpKind::kBarrier}) {
    CRIA_ASSIGN_OR_RETURN(const std::vector<double> waits_ms, rank.WaitsOf(op));
    if (waits_ms.empty()) return InternalError("no rank waited in ", Name(op));
    rows.push_back({{"op", op == OpKind::kSend ? "sendrecv" : Name(op)},
                    {"waits", waits_ms.size()},
                    {"median_ms", Median(waits_ms)},
                    {"greatest_ms", *std::max_element(waits_ms.begin(), waits_ms.end())}});
  }
  if (identity.rank == 0) {
    CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(rows));
    CRIA_RETURN_IF_ERROR(WriteFileAtomic(AbortRowsPath(folder), text));
  }
  return board.Barrier();
}

}  // namespace cria::comm

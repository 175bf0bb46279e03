#include "comm/shm/shm_transport.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/str.h"

namespace cria::comm {
namespace {

// Tells the tracker, where there is one, that this rank is in an operation, as long as it lives.
class Tracked {
 public:
  Tracked(WaitTracker* tracker, const OperationContext& context) : tracker_(tracker) {
    if (tracker_ != nullptr) tracker_->Begin(context);
  }
  ~Tracked() {
    if (tracker_ != nullptr) tracker_->End();
  }
  Tracked(const Tracked&) = delete;
  Tracked& operator=(const Tracked&) = delete;

 private:
  WaitTracker* const tracker_;
};

}  // namespace

ShmTransport::ShmTransport(Segment* segment, Peers* peers, const GroupInfo& group,
                           FailureState* failure)
    : sync_(segment, peers, group, failure),
      staging_(segment),
      windows_(segment, &sync_),
      mailbox_(segment, &sync_) {
  sources_.reserve(static_cast<size_t>(sync_.num_local()));
}

Status ShmTransport::Run(const OperationContext& context, std::span<const Round> rounds) {
  CRIA_RETURN_IF_ERROR(sync_.Broken());
  const Tracked tracked(sync_.tracker(), context);
  CRIA_RETURN_IF_ERROR(sync_.AttachAll(context));
  context.Step("enter");
  if (IsTiny(context, rounds)) return RunTiny(context);
  RunHeader& header = sync_.NextHeader();
  CRIA_ASSIGN_OR_RETURN(const bool windowed, windows_.Prepare(context, rounds, &header));
  staging_.Begin(context);
  if (!windowed) CRIA_RETURN_IF_ERROR(staging_.Prepare(context, rounds, &header));
  CRIA_RETURN_IF_ERROR(sync_.Enter(context));
  CRIA_ASSIGN_OR_RETURN(num_steps_, CountSteps(context));
  CRIA_RETURN_IF_ERROR(num_steps_ > 0 ? RunSteps(context, rounds[0]) : RunRounds(context, rounds));
  staging_.Finish(context, rounds);
  context.Step("leave");
  return OkStatus();
}

// The same on all ranks that agree on the signature.
bool ShmTransport::IsTiny(const OperationContext& context, std::span<const Round> rounds) const {
  const Plan& plan = *context.plan;
  return plan.kind == OpKind::kAllReduce && plan.algorithm == Algorithm::kFlat &&
         plan.rounds.size() == 1 && rounds.size() == 1 && plan.size == sync_.num_local() &&
         plan.count * ByteSize(plan.dtype) <= kTinyBytes;
}

Status ShmTransport::RunTiny(const OperationContext& context) {
  const Plan& plan = *context.plan;
  const int64_t bytes = plan.count * ByteSize(plan.dtype);
  const bool in_line = bytes <= kLinePayload;
  RunHeader& mine = sync_.NextHeader();
  std::memcpy(in_line ? mine.line_payload : mine.payload,
              context.slots[static_cast<size_t>(Slot::kInput)], static_cast<size_t>(bytes));
  CRIA_RETURN_IF_ERROR(sync_.Enter(context));
  sources_.clear();
  for (int i = 0; i < sync_.num_local(); ++i) {
    const RunHeader& header = sync_.header(i);
    sources_.push_back({.data = in_line ? header.line_payload : header.payload});
  }
  const ReduceTarget target = {.data = context.slots[static_cast<size_t>(Slot::kOutput)]};
  RunReduce({.dtype = plan.dtype, .op = plan.reduce_op, .group_size = plan.size}, sources_,
            {&target, 1}, plan.count);
  context.Step("leave");
  return OkStatus();
}

// What this rank stores as the owner of the round's tasks.
int64_t ShmTransport::BytesStored(const OperationContext& context, const Round& round) {
  int64_t elements = 0;
  for (const Task& task : round.tasks) {
    if (task.owner != context.plan->rank) continue;
    elements += task.count * static_cast<int64_t>(task.targets.size());
  }
  return elements * ByteSize(context.plan->dtype);
}

Status ShmTransport::RunRounds(const OperationContext& context, std::span<const Round> rounds) {
  for (const Round& round : rounds) {
    context.Step("round");
    const bool non_temporal = BytesStored(context, round) >= kNonTemporalBytes;
    for (const Task& task : round.tasks) {
      if (task.owner != context.plan->rank) continue;
      CRIA_RETURN_IF_ERROR(RunTask(context, task, 0, task.count, 0, non_temporal));
    }
    CRIA_RETURN_IF_ERROR(sync_.Barrier(context));
  }
  return OkStatus();
}

StatusOr<int64_t> ShmTransport::CountSteps(const OperationContext& context) const {
  int64_t longest = 0;
  bool windows = false;
  for (int i = 0; i < sync_.num_local(); ++i) {
    longest = std::max(longest, sync_.header(i).longest_task);
    windows |= sync_.header(i).windows != 0;
  }
  if (!windows) return 0;
  // No task is longer than all that the operation moves.
  if (longest / context.plan->size > std::max<int64_t>(context.signature.count, 1)) {
    return InternalError("a rank published a task of ", longest, " elements in an operation of ",
                         context.signature.count);
  }
  const int64_t tile = windows_.TileElements(*context.plan);
  return (longest + tile - 1) / tile;
}

Status ShmTransport::RunSteps(const OperationContext& context, const Round& round) {
  const int64_t tile = windows_.TileElements(*context.plan);
  const bool non_temporal = BytesStored(context, round) >= kNonTemporalBytes;
  for (int64_t step = 0; step < num_steps_; ++step) {
    context.Step("round");
    windows_.CopyIn(step + 1);
    for (const Task& task : round.tasks) {
      const int64_t first = step * tile;
      if (task.owner != context.plan->rank || first >= task.count) continue;
      CRIA_RETURN_IF_ERROR(
          RunTask(context, task, first, std::min(tile, task.count - first), step, non_temporal));
    }
    windows_.CopyOut(step - 1, non_temporal);
    CRIA_RETURN_IF_ERROR(sync_.Barrier(context));
  }
  windows_.CopyOut(num_steps_ - 1, non_temporal);
  return OkStatus();
}

StatusOr<ShmTransport::Found> ShmTransport::Find(const OperationContext& context,
                                                 const Region& region, int64_t first, int64_t count,
                                                 int64_t step) const {
  const int64_t element_bytes = SlotElementBytes(*context.plan, region.slot);
  const int64_t start = (region.offset + first) * element_bytes;
  if (region.rank == context.plan->rank) return Found{staging_.mine(region.slot) + start};
  const int local = sync_.LocalIndex(region.rank);
  CRIA_CHECK(local >= 0, "rank ", region.rank, " of a plan's round is on another host");
  const RunHeader& header = sync_.header(local);
  const int64_t place = header.places[static_cast<size_t>(region.slot)];
  Found found;
  int64_t offset = 0;
  if (place == kPrivate) {
    found.window = true;
    if (header.windows != 0) found.data = windows_.Of(local, header.windows, region.slot, step);
  } else if (!__builtin_add_overflow(place, start, &offset)) {
    found.data = sync_.mapping(local).At(offset, count * element_bytes);
  }
  if (found.data != nullptr) return found;
  return InternalError("rank ", region.rank, " published a place outside its shared memory, ",
                       place);
}

Status ShmTransport::RunTask(const OperationContext& context, const Task& task, int64_t first,
                             int64_t count, int64_t step, bool non_temporal) {
  const Plan& plan = *context.plan;
  sources_.clear();
  targets_.clear();
  places_.clear();
  window_places_.clear();
  for (const Region& source : task.sources) {
    CRIA_ASSIGN_OR_RETURN(const Found found, Find(context, source, first, count, step));
    sources_.push_back({.data = found.data, .partial = source.slot == Slot::kScratch});
  }
  for (const Region& target : task.targets) {
    CRIA_ASSIGN_OR_RETURN(const Found found, Find(context, target, first, count, step));
    targets_.push_back(
        {.data = found.data, .partial = target.slot == Slot::kScratch, .streamed = found.window});
    (found.window ? window_places_ : places_).push_back(found.data);
  }
  if (Reduces(plan.kind) && task.sources[0].slot != Slot::kOutput) {
    RunReduce({.dtype = plan.dtype, .op = plan.reduce_op, .group_size = plan.size}, sources_,
              targets_, count, non_temporal);
    return OkStatus();
  }
  CRIA_CHECK_EQ(task.sources.size(), 1u);
  const int64_t bytes = count * ByteSize(plan.dtype);
  if (!window_places_.empty()) RunCopy(sources_[0].data, window_places_, bytes, true);
  if (!places_.empty()) RunCopy(sources_[0].data, places_, bytes, non_temporal);
  return OkStatus();
}

Status ShmTransport::Exchange(const OperationContext& context, std::span<const Transfer> sends,
                              std::span<const Transfer> recvs) {
  CRIA_RETURN_IF_ERROR(sync_.Broken());
  const Tracked tracked(sync_.tracker(), context);
  context.Step("enter");
  CRIA_RETURN_IF_ERROR(mailbox_.Exchange(context, sends, recvs));
  context.Step("leave");
  return OkStatus();
}

}  // namespace cria::comm

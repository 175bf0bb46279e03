#include "comm/shm/shm_transport.h"

#include <cstring>

#include "base/check.h"
#include "base/str.h"

namespace cria::comm {

ShmTransport::ShmTransport(Segment* segment, Peers* peers, const GroupInfo& group,
                           FailureState* failure)
    : sync_(segment, peers, group, failure), staging_(segment), mailbox_(segment, &sync_) {
  sources_.reserve(static_cast<size_t>(sync_.num_local()));
}

Status ShmTransport::Run(const OperationContext& context, std::span<const Round> rounds) {
  CRIA_RETURN_IF_ERROR(sync_.Broken());
  CRIA_RETURN_IF_ERROR(sync_.AttachAll(context));
  context.Step("enter");
  if (IsTiny(context, rounds)) return RunTiny(context);
  CRIA_RETURN_IF_ERROR(staging_.Prepare(context, rounds, &sync_.NextHeader()));
  CRIA_RETURN_IF_ERROR(sync_.Enter(context));
  CRIA_RETURN_IF_ERROR(RunRounds(context, rounds));
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

Status ShmTransport::RunRounds(const OperationContext& context, std::span<const Round> rounds) {
  for (const Round& round : rounds) {
    context.Step("round");
    int64_t bytes = 0;
    for (const Task& task : round.tasks) {
      if (task.owner == context.plan->rank) {
        bytes += task.count * static_cast<int64_t>(task.targets.size());
      }
    }
    bytes *= ByteSize(context.plan->dtype);
    for (const Task& task : round.tasks) {
      if (task.owner != context.plan->rank) continue;
      CRIA_RETURN_IF_ERROR(RunTask(context, task, bytes >= kNonTemporalBytes));
    }
    CRIA_RETURN_IF_ERROR(sync_.Barrier(context));
  }
  return OkStatus();
}

StatusOr<std::byte*> ShmTransport::Find(const OperationContext& context, const Region& region,
                                        int64_t count) const {
  const int64_t element_bytes = SlotElementBytes(*context.plan, region.slot);
  if (region.rank == context.plan->rank) {
    return staging_.mine(region.slot) + region.offset * element_bytes;
  }
  const int local = sync_.LocalIndex(region.rank);
  CRIA_CHECK(local >= 0, "rank ", region.rank, " of a plan's round is on another host");
  const int64_t place = sync_.header(local).places[static_cast<size_t>(region.slot)];
  std::byte* found = nullptr;
  int64_t offset = 0;
  if (place != kPrivate && !__builtin_add_overflow(place, region.offset * element_bytes, &offset)) {
    found = sync_.mapping(local).At(offset, count * element_bytes);
  }
  if (found != nullptr) return found;
  return InternalError("rank ", region.rank, " published a place outside its shared memory, ",
                       place);
}

Status ShmTransport::RunTask(const OperationContext& context, const Task& task, bool non_temporal) {
  const Plan& plan = *context.plan;
  sources_.clear();
  targets_.clear();
  places_.clear();
  const bool reduces = Reduces(plan.kind) && task.sources[0].slot != Slot::kOutput;
  for (const Region& source : task.sources) {
    CRIA_ASSIGN_OR_RETURN(std::byte* const data, Find(context, source, task.count));
    sources_.push_back({.data = data, .partial = source.slot == Slot::kScratch});
  }
  for (const Region& target : task.targets) {
    CRIA_ASSIGN_OR_RETURN(std::byte* const data, Find(context, target, task.count));
    targets_.push_back({.data = data, .partial = target.slot == Slot::kScratch});
    places_.push_back(data);
  }
  if (reduces) {
    RunReduce({.dtype = plan.dtype, .op = plan.reduce_op, .group_size = plan.size}, sources_,
              targets_, task.count, non_temporal);
  } else {
    CRIA_CHECK_EQ(task.sources.size(), 1u);
    RunCopy(sources_[0].data, places_, task.count * ByteSize(plan.dtype), non_temporal);
  }
  return OkStatus();
}

Status ShmTransport::Exchange(const OperationContext& context, std::span<const Transfer> sends,
                              std::span<const Transfer> recvs) {
  CRIA_RETURN_IF_ERROR(sync_.Broken());
  context.Step("enter");
  CRIA_RETURN_IF_ERROR(mailbox_.Exchange(context, sends, recvs));
  context.Step("leave");
  return OkStatus();
}

}  // namespace cria::comm

#include "comm/engine/own_tasks.h"

#include <vector>

#include "base/check.h"
#include "comm/reduce/reduce.h"

namespace cria::comm {
namespace {

std::byte* At(const OperationContext& context, const Region& region) {
  CRIA_CHECK(region.rank == context.plan->rank);
  return context.slots[static_cast<size_t>(region.slot)] +
         region.offset * SlotElementBytes(*context.plan, region.slot);
}

void Reduce(const OperationContext& context, const Task& task) {
  const Plan& plan = *context.plan;
  const ReduceKernel kernel{.dtype = plan.dtype, .op = plan.reduce_op, .group_size = plan.size};
  std::vector<ReduceSource> sources;
  for (const Region& source : task.sources) {
    sources.push_back({At(context, source), source.slot == Slot::kScratch});
  }
  std::vector<ReduceTarget> targets;
  for (const Region& target : task.targets) {
    targets.push_back({At(context, target), target.slot == Slot::kScratch});
  }
  RunReduce(kernel, sources, targets, task.count);
}

void Copy(const OperationContext& context, const Task& task) {
  const std::byte* source = At(context, task.sources[0]);
  std::vector<void*> targets;
  for (const Region& target : task.targets) {
    if (std::byte* to = At(context, target); to != source) targets.push_back(to);
  }
  RunCopy(source, targets, task.count * ByteSize(context.plan->dtype));
}

}  // namespace

void RunOwnTasks(const OperationContext& context, std::span<const Round> rounds) {
  for (const Round& round : rounds) {
    for (const Task& task : round.tasks) {
      // A finished value is only copied; all others of a reduction are raw or partial.
      if (Reduces(context.plan->kind) && task.sources[0].slot != Slot::kOutput) {
        Reduce(context, task);
      } else {
        Copy(context, task);
      }
    }
  }
}

}  // namespace cria::comm

#include "model/parallel/pipeline_schedule.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "base/check.h"

namespace cria::model {
namespace {

// Sizes of the groups, the largest first.
std::vector<int> GroupSizes(const PipelineShape& shape, int micro_batches) {
  const int wanted = std::max(shape.group, shape.pp);
  const int groups =
      std::max(1, std::min((micro_batches + wanted - 1) / wanted, micro_batches / shape.pp));
  std::vector<int> sizes;
  for (int i = 0; i < groups; ++i) {
    sizes.push_back(micro_batches / groups + (i < micro_batches % groups ? 1 : 0));
  }
  return sizes;
}

// All forward (or backward) actions in the order that every rank keeps.
std::vector<PipelineAction> OneDirection(const std::vector<int>& groups, int chunks, bool forward) {
  std::vector<PipelineAction> actions;
  int first = 0;
  for (const int size : groups) {
    for (int i = 0; i < chunks; ++i) {
      const int chunk = forward ? i : chunks - 1 - i;
      for (int m = first; m < first + size; ++m) {
        actions.push_back({.forward = forward, .chunk = chunk, .micro_batch = m});
      }
    }
    first += size;
  }
  return actions;
}

// `warm_up` forwards, then one of each in turn.
std::vector<PipelineAction> Alternate(const std::vector<PipelineAction>& forwards,
                                      const std::vector<PipelineAction>& backwards,
                                      size_t warm_up) {
  std::vector<PipelineAction> actions;
  size_t next = 0;
  while (next < std::min(warm_up, forwards.size())) actions.push_back(forwards[next++]);
  for (const PipelineAction& backward : backwards) {
    if (next < forwards.size()) actions.push_back(forwards[next++]);
    actions.push_back(backward);
  }
  return actions;
}

// Each micro-batch takes the slot that has been free for longest: what left it is most likely to
// have arrived. Returns the number of slots.
int AssignSlots(std::vector<PipelineAction>* actions) {
  std::deque<int> free;
  int slots = 0;
  std::map<std::pair<int, int>, int> taken;  // by chunk and micro-batch
  for (PipelineAction& action : *actions) {
    const std::pair key = {action.chunk, action.micro_batch};
    if (action.forward) {
      if (free.empty()) free.push_back(slots++);
      action.slot = taken[key] = free.front();
      free.pop_front();
    } else {
      action.slot = taken[key];
      free.push_back(action.slot);
    }
  }
  return slots;
}

}  // namespace

PipelineSchedule MakeSchedule(const PipelineShape& shape, int micro_batches) {
  CRIA_CHECK_GT(shape.pp, 0);
  CRIA_CHECK_GT(shape.chunks, 0);
  CRIA_CHECK_GT(micro_batches, 0);
  const std::vector<int> groups = GroupSizes(shape, micro_batches);
  const std::vector<PipelineAction> forwards = OneDirection(groups, shape.chunks, true);
  const std::vector<PipelineAction> backwards = OneDirection(groups, shape.chunks, false);
  PipelineSchedule schedule;
  for (int rank = 0; rank < shape.pp; ++rank) {
    // The last rank's first backward follows its first forward through the last chunk; each rank
    // before it is one further ahead, so that its gradients come just in time.
    const int warm_up = (shape.chunks - 1) * groups.front() + shape.pp - 1 - rank;
    std::vector<PipelineAction> actions =
        Alternate(forwards, backwards, static_cast<size_t>(warm_up));
    schedule.slots.push_back(AssignSlots(&actions));
    schedule.ranks.push_back(std::move(actions));
  }
  return schedule;
}

}  // namespace cria::model

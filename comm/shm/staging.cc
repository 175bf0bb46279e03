#include "comm/shm/staging.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce/reduce.h"

namespace cria::comm {
namespace {

// Below this, the fence behind non-temporal stores costs more than they save.
constexpr int64_t kNonTemporalBytes = 4096;

}  // namespace

Staging::~Staging() {
  for (const Shadow& shadow : shadows_) {
    if (shadow.offset != 0) segment_->Free(shadow.offset);
  }
}

std::array<Staging::Use, 3> Staging::UsesOf(const OperationContext& context,
                                            std::span<const Round> rounds) const {
  std::array<Use, 3> uses;
  const int self = context.plan->rank;
  const auto note = [&](const Task& task, const Region& region, bool written) {
    if (region.rank != self) return;
    Use& use = uses[static_cast<size_t>(region.slot)];
    use.by_peers |= task.owner != self;
    use.written |= written;
    use.begin = std::min(use.begin, region.offset);
    use.end = std::max(use.end, region.offset + task.count);
  };
  for (const Round& round : rounds) {
    for (const Task& task : round.tasks) {
      for (const Region& source : task.sources) note(task, source, false);
      for (const Region& target : task.targets) note(task, target, true);
    }
  }
  return uses;
}

template <typename Copy>
void Staging::ForRegions(const OperationContext& context, std::span<const Round> rounds, Slot slot,
                         bool sources, bool own_too, const Copy& copy) const {
  const int self = context.plan->rank;
  const int64_t bytes = SlotElementBytes(*context.plan, slot);
  for (const Round& round : rounds) {
    for (const Task& task : round.tasks) {
      if (task.owner == self && !own_too) continue;
      for (const Region& region : sources ? task.sources : task.targets) {
        if (region.rank == self && region.slot == slot) {
          copy(region.offset * bytes, task.count * bytes);
        }
      }
    }
  }
}

Status Staging::Reserve(Shadow* shadow, int64_t bytes) {
  if (shadow->offset != 0 && shadow->bytes >= bytes) return OkStatus();
  if (shadow->offset != 0) segment_->Free(shadow->offset);
  *shadow = {};
  CRIA_ASSIGN_OR_RETURN(shadow->offset, segment_->Allocate(bytes));
  shadow->bytes = bytes;
  return OkStatus();
}

void Staging::Begin(const OperationContext& context) {
  for (size_t s = 0; s < 3; ++s) {
    mine_[s] = context.slots[s];
    shadow_bases_[s] = nullptr;
    exclusive_[s] = false;
  }
}

Status Staging::Prepare(const OperationContext& context, std::span<const Round> rounds,
                        RunHeader* header) {
  bool any_private = false;
  for (size_t s = 0; s < 3; ++s) {
    header->places[s] = segment_->OffsetOf(context.slots[s]);
    any_private |= header->places[s] == kPrivate && context.slots[s] != nullptr;
  }
  if (!any_private) return OkStatus();
  const std::array<Use, 3> uses = UsesOf(context, rounds);
  for (size_t s = 0; s < 3; ++s) {
    const Use& use = uses[s];
    const auto slot = static_cast<Slot>(s);
    if (header->places[s] != kPrivate || !use.by_peers) continue;
    const int64_t bytes = SlotElementBytes(*context.plan, slot);
    CRIA_RETURN_IF_ERROR(Reserve(&shadows_[s], (use.end - use.begin) * bytes));
    header->places[s] = shadows_[s].offset - use.begin * bytes;
    std::byte* base = segment_->mapping().base() + header->places[s];
    shadow_bases_[s] = base;
    exclusive_[s] = rounds.size() > 1 && use.written;
    if (exclusive_[s]) mine_[s] = base;
    ForRegions(context, rounds, slot, /*sources=*/true, /*own_too=*/exclusive_[s],
               [&](int64_t first, int64_t count) {
                 // Peers' caches have what they read here: an ordinary store would wait for them.
                 void* const target = base + first;
                 RunCopy(context.slots[s] + first, {&target, 1}, count, count >= kNonTemporalBytes);
               });
  }
  return OkStatus();
}

void Staging::Finish(const OperationContext& context, std::span<const Round> rounds) {
  for (size_t s = 0; s < 3; ++s) {
    if (shadow_bases_[s] == nullptr) continue;
    ForRegions(context, rounds, static_cast<Slot>(s), /*sources=*/false,
               /*own_too=*/exclusive_[s], [&](int64_t first, int64_t count) {
                 std::memcpy(context.slots[s] + first, shadow_bases_[s] + first,
                             static_cast<size_t>(count));
               });
  }
}

}  // namespace cria::comm

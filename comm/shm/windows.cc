#include "comm/shm/windows.h"

#include <algorithm>

#include "comm/reduce/reduce.h"

namespace cria::comm {
namespace {

// All windows of all ranks that are in use, 4 * ranks^2 tiles, are to stay in the shared cache.
constexpr int64_t kWindowsTotal = int64_t{2} << 20;
constexpr int64_t kTileBytesMax = int64_t{128} << 10;
constexpr int64_t kTileBytesMin = int64_t{16} << 10;
// Ranks that take turns on the cores meet seldom rather than in the caches.
constexpr int64_t kCrowdedTileBytes = int64_t{512} << 10;

int64_t TileBytesFor(const GroupSync& sync) {
  if (sync.taking_turns()) return kCrowdedTileBytes;
  int64_t bytes = kTileBytesMax;
  const int64_t ranks = sync.num_local();
  while (bytes > kTileBytesMin && 4 * ranks * ranks * bytes > kWindowsTotal) bytes /= 2;
  return bytes;
}

}  // namespace

Windows::Windows(Segment* segment, const GroupSync* sync) : segment_(segment), sync_(sync) {}

Windows::~Windows() {
  if (base_ != 0) segment_->Free(base_);
}

StatusOr<bool> Windows::Prepare(const OperationContext& context, std::span<const Round> rounds,
                                RunHeader* header) {
  if (tile_bytes_ == 0) tile_bytes_ = TileBytesFor(*sync_);
  header->windows = 0;
  header->longest_task = 0;
  for (const Round& round : rounds) {
    for (const Task& task : round.tasks) {
      header->longest_task = std::max(header->longest_task, task.count);
    }
  }
  if (rounds.size() != 1 || !Collect(context, rounds[0])) return false;
  if (base_ == 0) {
    CRIA_ASSIGN_OR_RETURN(base_, segment_->Allocate(4 * sync_->num_local() * tile_bytes_));
  }
  header->windows = base_;
  for (size_t s = 0; s < 3; ++s) header->places[s] = segment_->OffsetOf(context.slots[s]);
  CopyIn(0);
  return true;
}

// The regions that peers touch in private slots; false when windows cannot or need not serve.
bool Windows::Collect(const OperationContext& context, const Round& round) {
  inputs_.clear();
  outputs_.clear();
  const int self = context.plan->rank;
  const int64_t bytes = ByteSize(context.plan->dtype);
  int64_t longest = 0;
  const auto add = [&](const Task& task, const comm::Region& region, Slot slot,
                       std::vector<Region>* regions) {
    std::byte* start = context.slots[static_cast<size_t>(region.slot)];
    if (region.rank != self || segment_->OffsetOf(start) != kPrivate) return true;
    if (region.slot != slot) return false;
    const int owner = sync_->LocalIndex(task.owner);
    for (const Region& other : *regions) {
      if (other.owner_local == owner) return false;
    }
    regions->push_back({owner, start + region.offset * bytes, task.count * bytes});
    longest = std::max(longest, task.count * bytes);
    return true;
  };
  for (const Task& task : round.tasks) {
    if (task.owner == self) continue;
    for (const comm::Region& source : task.sources) {
      if (!add(task, source, Slot::kInput, &inputs_)) return false;
    }
    for (const comm::Region& target : task.targets) {
      if (!add(task, target, Slot::kOutput, &outputs_)) return false;
    }
  }
  // One tile is no pipeline: whole copies serve it as well.
  return longest > tile_bytes_;
}

int64_t Windows::OffsetOf(Slot slot, int64_t step, int owner_local) const {
  const int64_t index = (slot == Slot::kOutput ? 2 : 0) + (step & 1);
  return (index * sync_->num_local() + owner_local) * tile_bytes_;
}

std::byte* Windows::Of(int local, int64_t base, Slot slot, int64_t step) const {
  int64_t offset = 0;
  if (__builtin_add_overflow(base, OffsetOf(slot, step, sync_->self()), &offset)) return nullptr;
  return sync_->mapping(local).At(offset, tile_bytes_);
}

void Windows::CopyIn(int64_t step) {
  const int64_t first = step * tile_bytes_;
  for (const Region& region : inputs_) {
    if (first >= region.bytes) continue;
    // The owner's cache still has what it read here: an ordinary store would wait for it.
    void* const window =
        segment_->mapping().base() + base_ + OffsetOf(Slot::kInput, step, region.owner_local);
    RunCopy(region.data + first, {&window, 1}, std::min(tile_bytes_, region.bytes - first),
            /*non_temporal=*/true);
  }
}

void Windows::CopyOut(int64_t step, bool non_temporal) {
  const int64_t first = step * tile_bytes_;
  for (const Region& region : outputs_) {
    if (step < 0 || first >= region.bytes) continue;
    void* const target = region.data + first;
    RunCopy(segment_->mapping().base() + base_ + OffsetOf(Slot::kOutput, step, region.owner_local),
            {&target, 1}, std::min(tile_bytes_, region.bytes - first), non_temporal);
  }
}

}  // namespace cria::comm

// Private buffers, a tile at a time: large operations of one round pass through small windows in
// the segments, which stay in the caches, so that memory is read and written once.
//
//   step k of every rank:  copy in    tile k+1 of what peers read of this rank's input
//                          its tasks  on tile k: own memory, peers' windows (or segments)
//                          copy out   tile k-1 of what peers wrote for this rank's output
//                          barrier
//
// A tile is the same stretch of every task: elements [k, k+1) * tile_elements. A rank has a window
// for each slot (input, output), owner and parity of k; an owner finds its window by its own local
// index, which is why a rank uses windows only where each owner has one region of it at most.
// What a window of parity k held was used in step k - 1 at the latest, before the barrier.
// Thread-compatible.

#ifndef CRIA_COMM_SHM_WINDOWS_H_
#define CRIA_COMM_SHM_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/engine/transport.h"
#include "comm/shm/group_sync.h"
#include "comm/shm/layout.h"
#include "comm/shm/segment.h"

namespace cria::comm {

class Windows {
 public:
  // Both outlive this.
  Windows(Segment* segment, const GroupSync* sync);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Whether this rank runs these rounds with windows: it has private slots that peers touch, and
  // the rounds allow it. Then the header says so, and tile 0 is copied in; else only
  // longest_task of the header is set.
  StatusOr<bool> Prepare(const OperationContext& context, std::span<const Round> rounds,
                         RunHeader* header);

  // Of every rank alike, by the element's size.
  int64_t TileElements(const Plan& plan) const { return tile_bytes_ / ByteSize(plan.dtype); }
  // A peer's window as its tasks' owner, which is this rank; nullptr when it is not in its segment.
  std::byte* Of(int local, int64_t base, Slot slot, int64_t step) const;

  void CopyIn(int64_t step);
  void CopyOut(int64_t step, bool non_temporal);

 private:
  // A region of this rank's memory that an owner reads or writes.
  struct Region {
    int owner_local = 0;
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  bool Collect(const OperationContext& context, const Round& round);
  int64_t OffsetOf(Slot slot, int64_t step, int owner_local) const;

  Segment* const segment_;
  const GroupSync* const sync_;
  int64_t tile_bytes_ = 0;  // from the first Prepare on
  int64_t base_ = 0;        // 0: not allocated yet
  std::vector<Region> inputs_;
  std::vector<Region> outputs_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_WINDOWS_H_

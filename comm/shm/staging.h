// Makes every slot of a plan reachable for the peers: where a buffer is private memory, a copy of
// what they touch stands in the segment ("shadow").
//
//   staging.Prepare(context, rounds, &header)   fills header->places; copies in what peers read
//   ... the rounds: mine(slot) is where this rank itself reads and writes ...
//   staging.Finish(context, rounds)             copies out what was written to shadows
//
// In a single round this rank's own tasks use its own memory, and only the peers the shadow. Over
// several rounds, a slot that is written and that peers touch lives in the shadow alone until
// Finish, since later rounds read what earlier ones wrote.
// Thread-compatible. Cost for private memory: one copy each way; shadows are kept for the next Run.

#ifndef CRIA_COMM_SHM_STAGING_H_
#define CRIA_COMM_SHM_STAGING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "comm/engine/transport.h"
#include "comm/shm/layout.h"
#include "comm/shm/segment.h"

namespace cria::comm {

class Staging {
 public:
  explicit Staging(Segment* segment) : segment_(segment) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Before anything else of a Run: this rank's own memory, no shadows.
  void Begin(const OperationContext& context);
  Status Prepare(const OperationContext& context, std::span<const Round> rounds, RunHeader* header);
  // Where element 0 of this rank's slot is for its own tasks.
  std::byte* mine(Slot slot) const { return mine_[static_cast<size_t>(slot)]; }
  void Finish(const OperationContext& context, std::span<const Round> rounds);

 private:
  // How the rounds use a slot of this rank, in elements.
  struct Use {
    bool by_peers = false;
    bool written = false;
    int64_t begin = INT64_MAX;
    int64_t end = 0;
  };
  struct Shadow {
    int64_t offset = 0;  // 0: none
    int64_t bytes = 0;
  };
  std::array<Use, 3> UsesOf(const OperationContext& context, std::span<const Round> rounds) const;
  Status Reserve(Shadow* shadow, int64_t bytes);
  // Calls `copy(first byte in the slot, bytes)` for the regions of this rank's slot that are
  // sources (or targets), of all tasks or of the peers' alone.
  template <typename Copy>
  void ForRegions(const OperationContext& context, std::span<const Round> rounds, Slot slot,
                  bool sources, bool own_too, const Copy& copy) const;

  Segment* const segment_;
  std::array<Shadow, 3> shadows_;
  std::array<std::byte*, 3> mine_ = {};
  // In this Run: where element 0 of the shadow would be; nullptr when the slot has none.
  std::array<std::byte*, 3> shadow_bases_ = {};
  std::array<bool, 3> exclusive_ = {};  // the shadow alone holds the slot until Finish
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_STAGING_H_

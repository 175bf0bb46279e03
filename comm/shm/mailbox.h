// Messages between two ranks of a group.
//
// Both sides post what they have: the number and size of the message, and where its buffer is. Then
// whoever can reach the other's buffer moves the bytes:
//   the sender's is in its segment      the receiver copies, once
//   else the receiver's is              the sender copies, once
//   else                                through a ring of the sender's segment, both at work
// The receiver says when it has all of it; before that the sender does not return. One message of
// a direction of a pair is under way at a time; those of different pairs advance together.
// Thread-compatible.

#ifndef CRIA_COMM_SHM_MAILBOX_H_
#define CRIA_COMM_SHM_MAILBOX_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/engine/transport.h"
#include "comm/shm/group_sync.h"
#include "comm/shm/segment.h"

namespace cria::comm {

class Mailbox {
 public:
  // Both outlive this.
  Mailbox(Segment* segment, GroupSync* sync);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  Status Exchange(const OperationContext& context, std::span<const Transfer> sends,
                  std::span<const Transfer> recvs);

 private:
  // A transfer under way.
  struct Motion {
    const Transfer* transfer = nullptr;
    int local = 0;   // the peer
    int after = -1;  // the one before it in the same direction of the same pair
    bool posted = false;
    bool done = false;
    int64_t moved = 0;

    uint32_t number() const { return static_cast<uint32_t>(transfer->number); }
  };

  Status Enlist(const OperationContext& context, std::span<const Transfer> transfers,
                std::vector<Motion>* motions);
  // Advances everything that can be; *moved says whether anything did.
  Status Advance(const OperationContext& context, bool* moved);
  Status AdvanceSend(const OperationContext& context, Motion* motion, bool* moved);
  Status AdvanceRecv(const OperationContext& context, Motion* motion, bool* moved);
  Status Push(const OperationContext& context, const RecvBox& theirs, Motion* motion, bool* moved);
  Status FillRing(const RecvBox& theirs, Motion* motion, bool* moved);
  Status Pull(const OperationContext& context, const SendBox& theirs, Motion* motion, bool* moved);
  Status DrainRing(const OperationContext& context, const SendBox& theirs, Motion* motion,
                   bool* moved);
  Status CheckPending(const OperationContext& context);
  Status Mismatch(const OperationContext& context, const Motion& motion, bool sending,
                  int64_t theirs) const;
  Status Corrupt(const OperationContext& context, const Motion& motion) const;
  const Motion* FirstPending() const;

  Segment* const segment_;
  GroupSync* const sync_;
  std::vector<int64_t> rings_;  // by local index; 0: none yet
  std::vector<Motion> sends_;
  std::vector<Motion> recvs_;
  std::vector<int> latest_;  // scratch of Enlist, by local index
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_MAILBOX_H_

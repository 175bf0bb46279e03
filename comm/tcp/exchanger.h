// Point to point over a group's links: sends and receives at once, in any order.
//
//   Exchanger exchanger(state, links, domain);
//   exchanger.Run(context, sends, recvs)
//
// Each direction of a pair has a link of its own, on which messages stand in the order of their
// numbers and the receiver acknowledges each when its header is right: a send is over when the
// receive was there and agreed on the size. Payload follows the header at once. Since neither
// direction stands behind the other, groups of transfers that match never wait in a circle.
// Single-threaded.

#ifndef CRIA_COMM_TCP_EXCHANGER_H_
#define CRIA_COMM_TCP_EXCHANGER_H_

#include <poll.h>

#include <span>
#include <vector>

#include "base/status.h"
#include "comm/engine/transport.h"
#include "comm/tcp/group_state.h"
#include "comm/tcp/links.h"
#include "comm/tcp/waiter.h"

namespace cria::comm::tcp {

class Exchanger {
 public:
  Exchanger(GroupState* state, Links* links, DomainHooks* domain)
      : state_(state), links_(links), domain_(domain) {}

  // OK, or the error that ends the group; it is not reported to FailureState here.
  Status Run(const OperationContext& context, std::span<const Transfer> sends,
             std::span<const Transfer> recvs);

 private:
  // One direction of a pair: messages this way, acknowledgements that way.
  struct Lane {
    int peer = 0;
    Link* link = nullptr;
    bool sends = false;
    std::vector<const Transfer*> transfers = {};
    size_t next = 0;  // the message under way
    MessageHeader header = {};
    size_t header_done = 0;
    int64_t done = 0;
    size_t next_ack = 0;  // the acknowledgement under way
    MessageHeader ack = {};
    size_t ack_done = 0;
    size_t num_checked = 0;  // receives whose headers were right
    bool read_blocked = false;
    bool write_blocked = false;
    int stream = 0;

    bool Over() const { return next == transfers.size() && next_ack == transfers.size(); }
  };

  void AddLane(int peer, bool sends, const Transfer& transfer);
  Status Pass(bool* moved);
  Status Sleep(Waiter* waiter);
  Status PumpSend(Lane* lane, bool* moved);
  Status PumpAcks(Lane* lane, bool* moved);
  Status PumpReceive(Lane* lane, bool* moved);
  Status SendAcks(Lane* lane, bool* moved);
  Status CheckHeader(Lane* lane);
  Status CheckAck(Lane* lane);
  Status SizeMismatch(const Lane& lane, int64_t own, int64_t theirs);
  Status Lost(const Lane& lane, const Status& status) {
    return LinkError(state_, lane.peer, status);
  }

  GroupState* const state_;
  Links* const links_;
  DomainHooks* const domain_;
  const OperationContext* context_ = nullptr;
  std::vector<Lane> lanes_;
  std::vector<pollfd> entries_;
};

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_EXCHANGER_H_

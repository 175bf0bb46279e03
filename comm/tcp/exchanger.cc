#include "comm/tcp/exchanger.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/clock.h"

namespace cria::comm::tcp {
namespace {

constexpr int64_t kSendBytes = 256 << 10;

iovec Rest(MessageHeader* header, size_t done) {
  return {reinterpret_cast<std::byte*>(header) + done, sizeof(*header) - done};
}

}  // namespace

Status Exchanger::Run(const OperationContext& context, std::span<const Transfer> sends,
                      std::span<const Transfer> recvs) {
  context_ = &context;
  lanes_.clear();
  for (const Transfer& transfer : sends) AddLane(transfer.peer, /*sends=*/true, transfer);
  for (const Transfer& transfer : recvs) AddLane(transfer.peer, /*sends=*/false, transfer);
  Waiter waiter(state_, domain_, context.deadline_s, context.timeout_s);
  while (!std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.Over(); })) {
    CRIA_RETURN_IF_ERROR(waiter.Check());
    bool moved = false;
    CRIA_RETURN_IF_ERROR(Pass(&moved));
    if (moved) {
      waiter.Progressed();
      context.Step("message");
    } else if (!waiter.Spin()) {
      CRIA_RETURN_IF_ERROR(Sleep(&waiter));
    }
  }
  return OkStatus();
}

void Exchanger::AddLane(int peer, bool sends, const Transfer& transfer) {
  auto lane = std::find_if(lanes_.begin(), lanes_.end(), [peer, sends](const Lane& one) {
    return one.peer == peer && one.sends == sends;
  });
  if (lane == lanes_.end()) {
    const int self = state_->self_world();
    const int other = state_->WorldOf(peer);
    const Purpose purpose =
        sends ? Links::DirectionOf(self, other) : Links::DirectionOf(other, self);
    lanes_.push_back({.peer = peer, .link = links_->Get(peer, purpose), .sends = sends});
    lane = lanes_.end() - 1;
  }
  lane->transfers.push_back(&transfer);
}

Status Exchanger::Pass(bool* moved) {
  bool opening = false;
  for (const Lane& lane : lanes_) opening |= !lane.link->ready();
  if (opening) {
    CRIA_RETURN_IF_ERROR(links_->TakeAccepted());
    const double now_s = RealClock()->MonotonicSeconds();
    for (const Lane& lane : lanes_) {
      const Status status = lane.link->Advance(now_s);
      if (!status.ok()) return Lost(lane, status);
    }
  }
  for (Lane& lane : lanes_) {
    if (!lane.link->ready()) continue;
    lane.read_blocked = lane.write_blocked = false;
    if (lane.sends) {
      CRIA_RETURN_IF_ERROR(PumpSend(&lane, moved));
      CRIA_RETURN_IF_ERROR(PumpAcks(&lane, moved));
    } else {
      CRIA_RETURN_IF_ERROR(PumpReceive(&lane, moved));
      CRIA_RETURN_IF_ERROR(SendAcks(&lane, moved));
    }
  }
  return OkStatus();
}

Status Exchanger::Sleep(Waiter* waiter) {
  entries_.clear();
  double retry_s = std::numeric_limits<double>::max();
  // A receive is waited for before a send.
  const Lane* first = nullptr;
  for (const Lane& lane : lanes_) {
    if (lane.Over()) continue;
    if (first == nullptr || (first->sends && !lane.sends)) first = &lane;
    if (lane.link->ready()) {
      // Acknowledgements are on the first stream.
      lane.link->AddPoll(lane.read_blocked ? (lane.sends ? 0 : lane.stream) : -1,
                         lane.write_blocked ? (lane.sends ? lane.stream : 0) : -1, &entries_);
    } else {
      lane.link->AddPoll(-1, -1, &entries_);
      retry_s = std::min(retry_s, lane.link->retry_s());
    }
  }
  return waiter->Sleep(first == nullptr ? -1 : state_->WorldOf(first->peer), &entries_, retry_s);
}

Status Exchanger::PumpSend(Lane* lane, bool* moved) {
  int64_t budget = kSendBytes;
  while (lane->next < lane->transfers.size() && budget > 0) {
    const Transfer& transfer = *lane->transfers[lane->next];
    if (lane->header_done == 0) {
      lane->header = {.kind = MessageKind::kTransfer,
                      .signature = context_->signature,
                      .bytes = transfer.bytes,
                      .number = transfer.number};
    }
    int64_t left = 0;
    lane->stream = lane->link->StreamAt(transfer.bytes, lane->done, &left);
    const iovec header = Rest(&lane->header, lane->header_done);
    const std::array<iovec, 2> pieces = {
        header, {transfer.data + lane->done, static_cast<size_t>(std::min(left, budget))}};
    const std::span<const iovec> all(pieces);
    const StatusOr<int64_t> sent =
        lane->link->Write(lane->stream, header.iov_len > 0 ? all : all.subspan(1));
    if (!sent.ok()) return Lost(*lane, sent.status());
    if (*sent == 0) {
      lane->write_blocked = true;
      return OkStatus();
    }
    *moved = true;
    const auto of_header = std::min(*sent, static_cast<int64_t>(header.iov_len));
    lane->header_done += static_cast<size_t>(of_header);
    lane->done += *sent - of_header;
    budget -= *sent;
    if (lane->done < transfer.bytes || lane->header_done < sizeof(lane->header)) continue;
    ++lane->next;
    lane->header_done = 0;
    lane->done = 0;
  }
  return OkStatus();
}

Status Exchanger::PumpAcks(Lane* lane, bool* moved) {
  while (lane->next_ack < lane->transfers.size()) {
    const iovec piece = Rest(&lane->ack, lane->ack_done);
    const StatusOr<int64_t> got = lane->link->Read(0, std::span(&piece, 1));
    if (!got.ok()) return Lost(*lane, got.status());
    if (*got == 0) {
      lane->read_blocked = true;
      return OkStatus();
    }
    *moved = true;
    lane->ack_done += static_cast<size_t>(*got);
    if (lane->ack_done < sizeof(lane->ack)) continue;
    CRIA_RETURN_IF_ERROR(CheckAck(lane));
    ++lane->next_ack;
    lane->ack_done = 0;
  }
  return OkStatus();
}

Status Exchanger::PumpReceive(Lane* lane, bool* moved) {
  int64_t budget = kSendBytes;
  while (lane->next < lane->transfers.size() && budget > 0) {
    const Transfer& transfer = *lane->transfers[lane->next];
    const iovec header = Rest(&lane->header, lane->header_done);
    int64_t left = 0;
    lane->stream = lane->link->StreamAt(transfer.bytes, lane->done, &left);
    const iovec payload = {transfer.data + lane->done, static_cast<size_t>(std::min(left, budget))};
    // Nothing is stored before the size is known to be right.
    const StatusOr<int64_t> got =
        lane->link->Read(lane->stream, std::span(header.iov_len > 0 ? &header : &payload, 1));
    if (!got.ok()) return Lost(*lane, got.status());
    if (*got == 0) {
      lane->read_blocked = true;
      return OkStatus();
    }
    *moved = true;
    budget -= *got;
    if (header.iov_len == 0) {
      lane->done += *got;
    } else {
      lane->header_done += static_cast<size_t>(*got);
      if (lane->header_done < sizeof(lane->header)) continue;
      CRIA_RETURN_IF_ERROR(CheckHeader(lane));
    }
    if (lane->done < transfer.bytes) continue;
    ++lane->next;
    lane->header_done = 0;
    lane->done = 0;
  }
  return OkStatus();
}

Status Exchanger::SendAcks(Lane* lane, bool* moved) {
  while (lane->next_ack < lane->num_checked) {
    const Transfer& transfer = *lane->transfers[lane->next_ack];
    if (lane->ack_done == 0) {
      lane->ack = {.kind = MessageKind::kTransferAck,
                   .signature = context_->signature,
                   .bytes = transfer.bytes,
                   .number = transfer.number};
    }
    const iovec piece = Rest(&lane->ack, lane->ack_done);
    const StatusOr<int64_t> sent = lane->link->Write(0, std::span(&piece, 1));
    if (!sent.ok()) return Lost(*lane, sent.status());
    if (*sent == 0) {
      lane->write_blocked = true;
      return OkStatus();
    }
    *moved = true;
    lane->ack_done += static_cast<size_t>(*sent);
    if (lane->ack_done < sizeof(lane->ack)) continue;
    ++lane->next_ack;
    lane->ack_done = 0;
  }
  return OkStatus();
}

Status Exchanger::CheckHeader(Lane* lane) {
  const Transfer& transfer = *lane->transfers[lane->next];
  const MessageHeader& header = lane->header;
  CRIA_RETURN_IF_ERROR(Annotate(CheckMessage(header), StrCat("from rank ", lane->peer)));
  ++lane->num_checked;
  if (header.kind == MessageKind::kTransfer && header.number == transfer.number &&
      header.bytes == transfer.bytes) {
    return OkStatus();
  }
  bool moved = false;
  // The sender learns both sizes from the acknowledgement; the error follows it anyway.
  SendAcks(lane, &moved).IgnoreError();
  return SizeMismatch(*lane, transfer.bytes, header.bytes);
}

Status Exchanger::CheckAck(Lane* lane) {
  const Transfer& transfer = *lane->transfers[lane->next_ack];
  const MessageHeader& ack = lane->ack;
  CRIA_RETURN_IF_ERROR(Annotate(CheckMessage(ack), StrCat("from rank ", lane->peer)));
  if (ack.kind == MessageKind::kTransferAck && ack.number == transfer.number &&
      ack.bytes == transfer.bytes) {
    return OkStatus();
  }
  return SizeMismatch(*lane, transfer.bytes, ack.bytes);
}

Status Exchanger::SizeMismatch(const Lane& lane, int64_t own, int64_t theirs) {
  CommError error =
      state_->ErrorAbout(CommErrorKind::kMismatch, state_->WorldOf(lane.peer),
                         lane.sends ? StrCat("rank ", lane.peer, " expects a message of ", theirs,
                                             " bytes, this rank sent ", own)
                                    : StrCat("rank ", lane.peer, " sent a message of ", theirs,
                                             " bytes, this rank expects ", own));
  error.bytes = own;
  error.culprit_bytes = theirs;
  return ToStatus(error);
}

}  // namespace cria::comm::tcp

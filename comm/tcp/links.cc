#include "comm/tcp/links.h"

namespace cria::comm::tcp {

Link* Links::Get(int peer, Purpose purpose) {
  std::unique_ptr<Link>& link = links_[{peer, purpose}];
  if (link == nullptr) {
    LinkConfig config = make_config_(peer);
    config.hello.fixed.purpose = purpose;
    link = std::make_unique<Link>(std::move(config));
  }
  return link.get();
}

Status Links::TakeAccepted() {
  for (Accepted& accepted : state_->TakeAccepted()) {
    const int peer = state_->RankOf(accepted.hello.from_world);
    const Status status = Get(peer, accepted.hello.purpose)->Adopt(std::move(accepted));
    if (!status.ok()) return LinkError(state_, peer, status);
  }
  return OkStatus();
}

void Links::Settle(double deadline_s) {
  for (const auto& [key, link] : links_) link->Settle(deadline_s);
}

Status LinkError(GroupState* state, int peer, const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted) return status;
  const CommErrorKind kind = status.code() == StatusCode::kInvalidArgument
                                 ? CommErrorKind::kMismatch
                                 : CommErrorKind::kPeerLost;
  const std::string prefix =
      kind == CommErrorKind::kMismatch ? "" : StrCat("lost rank ", peer, ": ");
  return ToStatus(state->ErrorAbout(kind, state->WorldOf(peer), StrCat(prefix, Message(status))));
}

}  // namespace cria::comm::tcp

// One group's transport over TCP: its links, the runner of plans and of point to point, and the
// listener that spreads the group's failure. Internal; engine/transport.h is the interface.

#ifndef CRIA_COMM_TCP_TCP_TRANSPORT_H_
#define CRIA_COMM_TCP_TCP_TRANSPORT_H_

#include <memory>
#include <span>

#include "base/status.h"
#include "comm/engine/transport.h"
#include "comm/tcp/exchanger.h"
#include "comm/tcp/group_state.h"
#include "comm/tcp/links.h"
#include "comm/tcp/runner.h"

namespace cria::comm::tcp {

class Domain;

class TcpTransport : public Transport, public WaitTracker {
 public:
  // `domain` outlives this object.
  TcpTransport(Domain* domain, std::shared_ptr<GroupState> state);
  ~TcpTransport() override;

  Status Run(const OperationContext& context, std::span<const Round> rounds) override;
  Status Exchange(const OperationContext& context, std::span<const Transfer> sends,
                  std::span<const Transfer> recvs) override;

  WaitTracker* wait_tracker() override { return this; }
  void Begin(const OperationContext& context) override;
  void End() override;
  void SetWaiting(int rank) override;
  CommError Timeout(double timeout_s) override;

 private:
  // Reports an error to the group, whose first error is the outcome.
  Status Finish(const OperationContext& context, const Status& status);
  // Gives the news of somebody's failure a moment to arrive.
  void WaitForNews();

  Domain* const domain_;
  const std::shared_ptr<GroupState> state_;
  Links links_;
  Runner runner_;
  Exchanger exchanger_;
  int listener_ = 0;
};

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_TCP_TRANSPORT_H_

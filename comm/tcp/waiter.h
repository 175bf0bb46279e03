// How the running thread of a group waits when nothing moves: it looks again for a while, then
// sleeps in poll until a socket, a failure or the deadline wakes it, and says for whom it waits.
//
//   Waiter waiter(state, domain, deadline_s, timeout_s);
//   for (;;) {
//     CRIA_RETURN_IF_ERROR(waiter.Check());
//     if (TryAll()) { waiter.Progressed(); continue; }
//     if (waiter.Spin()) continue;
//     CRIA_RETURN_IF_ERROR(waiter.Sleep(world_rank, &entries, retry_s));
//   }
//
// Single-threaded.

#ifndef CRIA_COMM_TCP_WAITER_H_
#define CRIA_COMM_TCP_WAITER_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/tcp/group_state.h"

struct pollfd;

namespace cria::comm::tcp {

// What the running thread needs of the domain.
class DomainHooks {
 public:
  virtual ~DomainHooks() = default;
  // The domain's thread looks at the groups: one of them waits.
  virtual void Kick() = 0;
  // How long to look for data before sleeping: 0 where ranks share cores.
  virtual double spin_s() const = 0;
};

class Waiter {
 public:
  Waiter(GroupState* state, DomainHooks* domain, double deadline_s, double timeout_s);
  ~Waiter();

  // The failure of the group, if there is one.
  Status Check() const {
    return state_->failure()->failed() ? state_->failure()->status() : OkStatus();
  }
  void Progressed();
  // True while it is worth trying again at once.
  bool Spin();
  // Sleeps until one of `entries` (and the group's wake-up) has something, at most until retry_s.
  // DeadlineExceeded names the culprit.
  Status Sleep(int waits_for_world, std::vector<pollfd>* entries, double retry_s);

 private:
  GroupState* const state_;
  DomainHooks* const domain_;
  const double deadline_s_;
  const double timeout_s_;
  const double ask_after_s_;
  double idle_since_s_ = 0;  // 0: not idle
  bool told_ = false;
};

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_WAITER_H_

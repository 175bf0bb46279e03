// The TCP domain: the listening port, the thread that watches it and the control connections, and
// the groups that are open. Internal; tcp_domain.h is the interface.

#ifndef CRIA_COMM_TCP_DOMAIN_H_
#define CRIA_COMM_TCP_DOMAIN_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "comm/tcp/acceptor.h"
#include "comm/tcp/control.h"
#include "comm/tcp/group_state.h"
#include "comm/tcp/link.h"
#include "comm/tcp/tcp_domain.h"
#include "comm/tcp/waiter.h"

namespace cria::comm::tcp {

class Domain : public TcpDomain, public DomainHooks, AcceptorHooks, ControlHooks {
 public:
  static StatusOr<std::unique_ptr<Domain>> Make(const TcpOptions& options);
  ~Domain() override;

  const std::string& address() const override { return address_; }
  int port() const override { return port_; }
  void Start(int world_rank, std::shared_ptr<const RankMap> rank_map) override;
  StatusOr<std::unique_ptr<Transport>> OpenGroup(const GroupInfo& group,
                                                 FailureState* failure) override;
  int num_connections() const override { return num_connections_.load(std::memory_order_relaxed); }

  // For transports. A failed group's peers are told by the domain's thread.
  void Kick() override;
  double spin_s() const override { return spin_s_; }
  void QueuePoison(const std::shared_ptr<GroupState>& group, Poison poison);
  // Waits until the news of a failure has left this process, at most for `seconds`: who returns
  // an error may exit at once.
  void WaitUntilTold(double seconds) CRIA_EXCLUDES(mu_);
  void CloseGroup(uint64_t id);
  LinkConfig LinkTo(const GroupState& group, int peer);

 private:
  Domain(const TcpOptions& options, Fd listener, Fd wake, const SocketAddress& bound);

  // AcceptorHooks, ControlHooks: from the domain's thread.
  std::shared_ptr<GroupState> FindGroup(uint64_t id) override;
  std::shared_ptr<GroupState> FindWaitingNamesake(const Hello& hello) override;
  bool GroupClosed(uint64_t id) override;
  void TakeControl(Fd fd, int from_world) override;
  void AcceptFailed(const Status& status) override;
  SocketAddress AddressOf(int world) override;
  HelloFixed ControlHello(int to_world) override;
  void OnPing(int from_world, uint64_t group_id, const Ping& ping) override;
  void OnPong(int from_world, uint64_t group_id, const Pong& pong) override;
  void OnPoison(int from_world, uint64_t group_id, const Poison& poison) override;
  void OnDead(int world, const std::string& why) override;

  void ThreadMain();
  void OneTurn();
  // Asks for those that wait, tells those who asked of news, spreads poison.
  void Tick(double now_s);
  void SpreadPoison(double now_s);
  void TellPeers(GroupState* group, const Poison& poison, double now_s);
  std::vector<std::shared_ptr<GroupState>> Groups();

  // Constant after construction.
  const TcpOptions options_;
  const Fd wake_;
  std::string address_;
  int port_ = 0;

  // Constant after Start; the thread starts then.
  int world_rank_ = -1;
  std::shared_ptr<const RankMap> rank_map_;
  std::vector<SocketAddress> addresses_;
  uint64_t job_ = 0;
  double spin_s_ = 0;

  std::atomic<int> num_connections_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> kicked_{false};  // a group began to wait, or was opened

  // The thread's own.
  Acceptor acceptor_;
  Control control_;
  std::vector<pollfd> entries_;
  std::map<uint64_t, double> asked_s_;  // by group id: when the last question went out
  bool anybody_waits_ = false;

  Mutex mu_;
  std::map<uint64_t, std::shared_ptr<GroupState>> groups_ CRIA_GUARDED_BY(mu_);
  std::deque<uint64_t> closed_ CRIA_GUARDED_BY(mu_);
  std::vector<std::pair<std::shared_ptr<GroupState>, Poison>> poison_ CRIA_GUARDED_BY(mu_);
  // For groups that are not open here yet.
  std::deque<std::pair<uint64_t, Poison>> early_poison_ CRIA_GUARDED_BY(mu_);
  bool telling_ CRIA_GUARDED_BY(mu_) = false;  // poison is queued, or not all sent
  CondVar told_;

  std::thread thread_;
};

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_DOMAIN_H_

// The links of one group: found by peer and purpose, made when first asked for, fed with the
// connections that peers open.
//
//   CRIA_RETURN_IF_ERROR(links.TakeAccepted());
//   Link* link = links.Get(peer, Purpose::kCollective);
//
// Single-threaded: the group's running thread.

#ifndef CRIA_COMM_TCP_LINKS_H_
#define CRIA_COMM_TCP_LINKS_H_

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/status.h"
#include "comm/tcp/group_state.h"
#include "comm/tcp/link.h"

namespace cria::comm::tcp {

class Links {
 public:
  // What a link to this peer looks like; hello.purpose is filled in by Get.
  using MakeConfig = std::function<LinkConfig(int peer)>;

  Links(GroupState* state, MakeConfig make_config)
      : state_(state), make_config_(std::move(make_config)) {}

  // The link, connecting or not.
  Link* Get(int peer, Purpose purpose);
  // Hands the connections that came to their links.
  Status TakeAccepted();
  // Link::Settle of all.
  void Settle(double deadline_s);
  // The purpose of the link on which `from` sends to `to` point to point (world ranks).
  static Purpose DirectionOf(int from_world, int to_world) {
    return from_world < to_world ? Purpose::kUpward : Purpose::kDownward;
  }

 private:
  GroupState* const state_;
  const MakeConfig make_config_;
  std::map<std::pair<int, Purpose>, std::unique_ptr<Link>> links_;
};

// The error of a link to `peer` in terms of the group: peer lost for what its end or the network
// did, mismatch for another group of that name; without descriptors as it is.
Status LinkError(GroupState* state, int peer, const Status& status);

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_LINKS_H_

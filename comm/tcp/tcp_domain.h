// A process's TCP endpoint: one listening port, connections made when first needed, a thread that
// watches them.
//
//   CRIA_ASSIGN_OR_RETURN(auto domain, TcpDomain::Create({.address = "10.0.0.3"}));
//   info.address = domain->address(); info.port = domain->port();   // into the rank map
//   domain->Start(rank, rank_map);                                  // after the rendezvous
//   CRIA_ASSIGN_OR_RETURN(auto transport, domain->OpenGroup(group, &failure));
//
// A pair of ranks of a group has `streams` connections of its own, opened by the first that needs
// one. The watching thread answers the peers' pings with what this process waits for, notices dead
// and half-open peers, and carries failures to all connected peers.
// Thread-safe. A domain outlives its transports.

#ifndef CRIA_COMM_TCP_TCP_DOMAIN_H_
#define CRIA_COMM_TCP_TCP_DOMAIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/rank_map.h"
#include "comm/engine/transport.h"

namespace cria::comm {

struct TcpOptions {
  std::string address = {};  // numeric, of the interface to listen on (comm/net/interfaces.h)
  int port = 0;              // 0: any
  int streams = 1;           // connections a pair uses for large messages
  int backlog = 4096;
};

class TcpDomain {
 public:
  // Unavailable when the address cannot be bound, ResourceExhausted without file descriptors.
  static StatusOr<std::unique_ptr<TcpDomain>> Create(const TcpOptions& options);
  virtual ~TcpDomain() = default;

  virtual const std::string& address() const = 0;
  virtual int port() const = 0;
  virtual void Start(int world_rank, std::shared_ptr<const RankMap> rank_map) = 0;
  // No communication: peers are met at the first Run. `failure` outlives the transport.
  virtual StatusOr<std::unique_ptr<Transport>> OpenGroup(const GroupInfo& group,
                                                         FailureState* failure) = 0;
  // Sockets for data that are open now, for tests and status pages: a plan's edges times streams,
  // not a mesh. Control connections are not among them: they open only when somebody waits long
  // or fails.
  virtual int num_connections() const = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_TCP_TCP_DOMAIN_H_

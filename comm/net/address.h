// Where a socket is bound or connects to: an IPv4 or IPv6 address and a port.
//
//   CRIA_ASSIGN_OR_RETURN(SocketAddress address, ParseAddress("10.0.0.3", 29500));
//   CRIA_ASSIGN_OR_RETURN(SocketAddress master, ResolveHost("node-0.cluster", 29500, 30));
//
// Thread-safe: values. Only ResolveHost asks the network; call it once a job, not once a
// connection.

#ifndef CRIA_COMM_NET_ADDRESS_H_
#define CRIA_COMM_NET_ADDRESS_H_

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace cria::comm {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  int port() const;
  void SetPort(int port);
  // The numeric address alone: "10.0.0.3", "fe80::1%eth0".
  std::string host() const;
  // "10.0.0.3:29500", "[::1]:29500".
  std::string ToString() const;
};

// A numeric address ("10.0.0.3", "::1", "fe80::1%eth0", also in brackets). InvalidArgument for
// anything else and for a port outside [0, 65535].
StatusOr<SocketAddress> ParseAddress(std::string_view numeric, int port);

// The address of a host name or of a numeric address; IPv4 is preferred. Tries again while the
// resolver is out of reach; Unavailable after `timeout_s`, NotFound when there is no such name.
StatusOr<SocketAddress> ResolveHost(const std::string& name, int port, double timeout_s);

// Of the two ends of a socket.
StatusOr<SocketAddress> LocalAddress(int fd);
StatusOr<SocketAddress> PeerAddress(int fd);

}  // namespace cria::comm

#endif  // CRIA_COMM_NET_ADDRESS_H_

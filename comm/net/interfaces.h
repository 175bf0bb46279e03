// This host's network interfaces, and which of them a job's traffic takes.
//
//   CRIA_ASSIGN_OR_RETURN(std::string address, ChooseAddress("", "node-0", 29500));     //
//   automatic ChooseAddress("eth0", ...)   ChooseAddress("10.0.0.0/8", ...) // told
//
// Automatic is the interface over which this host reaches the master: the routing table decides,
// not the order in which the kernel lists interfaces, so that a container bridge is never picked by
// chance. Thread-safe.
// Errors: InvalidArgument when the choice names nothing usable; it lists what there is.

#ifndef CRIA_COMM_NET_INTERFACES_H_
#define CRIA_COMM_NET_INTERFACES_H_

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/net/address.h"

namespace cria::comm {

struct InterfaceAddress {
  SocketAddress address = {};
  int prefix_bits = 0;
};

struct Interface {
  std::string name = {};
  bool up = false;  // switched on, and with a carrier
  bool loopback = false;
  bool bridge = false;
  std::vector<InterfaceAddress> addresses = {};
};

// By the kernel's index.
StatusOr<std::vector<Interface>> ListInterfaces();

// "eth0 10.0.0.3/24 up; br0 172.17.0.1/16 up, bridge; eth1 down": for messages.
std::string Describe(std::span<const Interface> interfaces);

// The numeric address to listen on. `choice`: an interface's name; a CIDR ("10.0.0.0/8",
// "fd00::/16"): the interface with an address inside, bridges last; empty: the route to the master.
StatusOr<std::string> ChooseAddress(const std::string& choice, const std::string& master_host,
                                    int master_port);

// The same, of these interfaces: what ChooseAddress does with a name or a CIDR.
StatusOr<std::string> ChooseAmong(std::span<const Interface> interfaces, const std::string& choice);

// Is `address` inside "10.0.0.0/8"? InvalidArgument for what is no CIDR.
StatusOr<bool> InsideCidr(const SocketAddress& address, const std::string& cidr);

// The local address from which packets to `target` leave.
StatusOr<SocketAddress> RouteSource(const SocketAddress& target);

}  // namespace cria::comm

#endif  // CRIA_COMM_NET_INTERFACES_H_

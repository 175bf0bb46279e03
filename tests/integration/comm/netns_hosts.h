// Several hosts on one machine: network namespaces, each with one interface on a common bridge.
//
//   StatusOr<std::unique_ptr<NetnsHosts>> hosts = NetnsHosts::Create(4);
//   if (!hosts.ok()) GTEST_SKIP() << hosts.status();
//   if (fork() == 0) { (*hosts)->Enter(2); ... }          // this process is on host 2 now
//   (*hosts)->SetLink(2, /*up=*/false);
//
// Needs root and ip(8). Names carry the process id; all of it is gone with the object.

#ifndef CRIA_TESTS_INTEGRATION_COMM_NETNS_HOSTS_H_
#define CRIA_TESTS_INTEGRATION_COMM_NETNS_HOSTS_H_

#include <memory>
#include <string>

#include "base/status.h"

namespace cria::comm {

class NetnsHosts {
 public:
  // FailedPrecondition with the reason when this machine cannot.
  static StatusOr<std::unique_ptr<NetnsHosts>> Create(int num_hosts);
  ~NetnsHosts();

  // Moves the calling thread, and what it starts, to that host.
  Status Enter(int host) const;
  Status SetLink(int host, bool up) const;
  // "10.83.0.1" and on; the network is Cidr().
  static std::string Address(int host);
  static const char* Cidr() { return "10.83.0.0/24"; }

 private:
  explicit NetnsHosts(int num_hosts);
  std::string Name(int host) const;
  Status SetUp() const;

  const int num_hosts_;
  const std::string prefix_;
};

}  // namespace cria::comm

#endif  // CRIA_TESTS_INTEGRATION_COMM_NETNS_HOSTS_H_

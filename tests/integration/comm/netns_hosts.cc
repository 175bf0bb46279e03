#include "tests/integration/comm/netns_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/str.h"

namespace cria::comm {
namespace {

Status Ip(const std::string& arguments) {
  const std::string command = StrCat("ip ", arguments, " 2>/dev/null");
  if (std::system(command.c_str()) == 0) return OkStatus();
  return FailedPreconditionError("`", command, "` fails: needs root, ip(8), network namespaces");
}

}  // namespace

NetnsHosts::NetnsHosts(int num_hosts)
    : num_hosts_(num_hosts), prefix_(StrCat("cria_test_", getpid(), "_")) {}

std::string NetnsHosts::Name(int host) const {
  return host < 0 ? prefix_ + "switch" : StrCat(prefix_, host);
}

std::string NetnsHosts::Address(int host) { return StrCat("10.83.0.", host + 1); }

StatusOr<std::unique_ptr<NetnsHosts>> NetnsHosts::Create(int num_hosts) {
  if (geteuid() != 0) return FailedPreconditionError("network namespaces need root");
  std::unique_ptr<NetnsHosts> hosts(new NetnsHosts(num_hosts));
  CRIA_RETURN_IF_ERROR(hosts->SetUp());
  return hosts;
}

Status NetnsHosts::SetUp() const {
  const std::string bridge = Name(-1);
  CRIA_RETURN_IF_ERROR(Ip(StrCat("netns add ", bridge)));
  CRIA_RETURN_IF_ERROR(Ip(StrCat("-n ", bridge, " link add br0 type bridge")));
  CRIA_RETURN_IF_ERROR(Ip(StrCat("-n ", bridge, " link set br0 up")));
  for (int host = 0; host < num_hosts_; ++host) {
    const std::string name = Name(host);
    CRIA_RETURN_IF_ERROR(Ip(StrCat("netns add ", name)));
    CRIA_RETURN_IF_ERROR(Ip(StrCat("-n ", name, " link set lo up")));
    CRIA_RETURN_IF_ERROR(Ip(
        StrCat("-n ", name, " link add eth0 type veth peer name port", host, " netns ", bridge)));
    CRIA_RETURN_IF_ERROR(Ip(StrCat("-n ", bridge, " link set port", host, " master br0 up")));
    CRIA_RETURN_IF_ERROR(Ip(StrCat("-n ", name, " addr add ", Address(host), "/24 dev eth0")));
    CRIA_RETURN_IF_ERROR(Ip(StrCat("-n ", name, " link set eth0 up")));
  }
  return OkStatus();
}

NetnsHosts::~NetnsHosts() {
  for (int host = -1; host < num_hosts_; ++host) {
    Ip(StrCat("netns del ", Name(host))).IgnoreError();
  }
}

Status NetnsHosts::Enter(int host) const {
  const std::string path = StrCat("/run/netns/", Name(host));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, path);
  const bool entered = setns(fd, CLONE_NEWNET) == 0;
  const int error_number = errno;
  close(fd);
  return entered ? OkStatus() : ErrnoError(error_number, StrCat("setns ", path));
}

Status NetnsHosts::SetLink(int host, bool up) const {
  return Ip(StrCat("-n ", Name(host), " link set eth0 ", up ? "up" : "down"));
}

}  // namespace cria::comm

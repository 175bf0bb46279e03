#include "comm/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/clock.h"

namespace cria::comm {
namespace {

constexpr int kPortMax = 65535;
constexpr double kResolveRetrySeconds = 0.5;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// getaddrinfo as a call that returns its list; *error is 0 or EAI_*.
AddressList Lookup(const std::string& name, int flags, int* error) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  *error = getaddrinfo(name.c_str(), nullptr, &hints, &list);
  return AddressList(*error == 0 ? list : nullptr);
}

SocketAddress FromInfo(const addrinfo& info, int port) {
  SocketAddress address;
  address.length = info.ai_addrlen;
  std::memcpy(&address.storage, info.ai_addr, info.ai_addrlen);
  address.SetPort(port);
  return address;
}

Status CheckPort(int port) {
  if (port >= 0 && port <= kPortMax) return OkStatus();
  return InvalidArgumentError("port ", port, " is outside [0, ", kPortMax, "]");
}

using NameFunction = int (*)(int, sockaddr*, socklen_t*);

StatusOr<SocketAddress> EndOf(int fd, NameFunction function, const char* what) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (function(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return ErrnoError(errno, what);
  }
  return address;
}

}  // namespace

int SocketAddress::port() const {
  if (family() == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void SocketAddress::SetPort(int port) {
  const uint16_t net_port = htons(static_cast<uint16_t>(port));
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = net_port;
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = net_port;
  }
}

std::string SocketAddress::host() const {
  std::array<char, NI_MAXHOST> text = {};
  if (length == 0 ||
      getnameinfo(get(), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "?";
  }
  return text.data();
}

std::string SocketAddress::ToString() const {
  const std::string name = host();
  return family() == AF_INET6 ? StrCat("[", name, "]:", port()) : StrCat(name, ":", port());
}

StatusOr<SocketAddress> ParseAddress(std::string_view numeric, int port) {
  CRIA_RETURN_IF_ERROR(CheckPort(port));
  std::string name(numeric);
  if (name.size() >= 2 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  int error = 0;
  const AddressList list = Lookup(name, AI_NUMERICHOST, &error);
  if (list == nullptr || name.empty()) {
    return InvalidArgumentError("\"", name, "\" is no numeric IPv4 or IPv6 address");
  }
  return FromInfo(*list, port);
}

StatusOr<SocketAddress> ResolveHost(const std::string& name, int port, double timeout_s) {
  CRIA_RETURN_IF_ERROR(CheckPort(port));
  if (name.empty()) return InvalidArgumentError("the host name is empty");
  if (const auto numeric = ParseAddress(name, port); numeric.ok()) return numeric;
  const double deadline_s = RealClock()->MonotonicSeconds() + timeout_s;
  for (;;) {
    int error = 0;
    const AddressList list = Lookup(name, 0, &error);
    if (list != nullptr) {
      const addrinfo* best = list.get();
      for (const addrinfo* info = best; info != nullptr; info = info->ai_next) {
        if (info->ai_family != AF_INET) continue;
        best = info;
        break;
      }
      return FromInfo(*best, port);
    }
    if (error != EAI_AGAIN) {
      return NotFoundError("resolve host \"", name, "\": ", gai_strerror(error));
    }
    const double left_s = deadline_s - RealClock()->MonotonicSeconds();
    if (left_s <= 0) {
      return UnavailableError("resolve host \"", name, "\": no answer from the resolver within ",
                              timeout_s, " s");
    }
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::min(left_s, kResolveRetrySeconds)));
  }
}

StatusOr<SocketAddress> LocalAddress(int fd) { return EndOf(fd, getsockname, "getsockname"); }
StatusOr<SocketAddress> PeerAddress(int fd) { return EndOf(fd, getpeername, "getpeername"); }

}  // namespace cria::comm

#include "comm/net/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "comm/net/fd.h"
#include "comm/net/socket.h"

namespace cria::comm {
namespace {

constexpr double kResolveSeconds = 30;

// The bytes of the address itself, in network order.
std::span<const uint8_t> BytesOf(const SocketAddress& address) {
  if (address.family() == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    return {reinterpret_cast<const uint8_t*>(&six->sin6_addr), 16};
  }
  const auto* four = reinterpret_cast<const sockaddr_in*>(&address.storage);
  return {reinterpret_cast<const uint8_t*>(&four->sin_addr), 4};
}

bool IsLoopback(const SocketAddress& address) {
  const std::span<const uint8_t> bytes = BytesOf(address);
  if (address.family() == AF_INET) return bytes[0] == 127;
  return std::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t b) { return b == 0; }) &&
         bytes[15] == 1;
}

SocketAddress FromRaw(const sockaddr* raw) {
  SocketAddress address;
  address.length = raw->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&address.storage, raw, address.length);
  return address;
}

int PrefixBits(const sockaddr* mask, int family) {
  if (mask == nullptr) return 0;
  SocketAddress address = FromRaw(mask);
  address.storage.ss_family = static_cast<sa_family_t>(family);  // the kernel leaves it out
  int bits = 0;
  for (const uint8_t byte : BytesOf(address)) bits += std::popcount(byte);
  return bits;
}

// Asked of the driver: /sys shows another namespace's interfaces inside a network namespace.
bool IsBridge(int fd, const std::string& name) {
  ethtool_drvinfo info = {};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq request = {};
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&info);
  return ioctl(fd, SIOCETHTOOL, &request) == 0 && std::strcmp(info.driver, "bridge") == 0;
}

// The address of an interface to listen on: IPv4 first, link-local last.
const InterfaceAddress* BestAddress(const Interface& interface) {
  const auto rank = [](const InterfaceAddress& one) {
    if (one.address.family() == AF_INET) return 0;
    return BytesOf(one.address)[0] == 0xfe && (BytesOf(one.address)[1] & 0xc0) == 0x80 ? 2 : 1;
  };
  const InterfaceAddress* best = nullptr;
  for (const InterfaceAddress& one : interface.addresses) {
    if (best == nullptr || rank(one) < rank(*best)) best = &one;
  }
  return best;
}

Status NothingUsable(const std::string& what, std::span<const Interface> interfaces) {
  return InvalidArgumentError(what, "; this host has: ", Describe(interfaces));
}

}  // namespace

StatusOr<std::vector<Interface>> ListInterfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return ErrnoError(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, freeifaddrs);
  const Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SocketError(errno, "socket");
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    auto found = std::find_if(interfaces.begin(), interfaces.end(), [entry](const Interface& one) {
      return one.name == entry->ifa_name;
    });
    if (found == interfaces.end()) {
      constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
      interfaces.push_back({.name = entry->ifa_name,
                            .up = (entry->ifa_flags & kUp) == kUp,
                            .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                            .bridge = IsBridge(fd.get(), entry->ifa_name)});
      found = interfaces.end() - 1;
    }
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    found->addresses.push_back({FromRaw(entry->ifa_addr), PrefixBits(entry->ifa_netmask, family)});
  }
  return interfaces;
}

std::string Describe(std::span<const Interface> interfaces) {
  std::string text;
  for (const Interface& interface : interfaces) {
    text += text.empty() ? interface.name : StrCat("; ", interface.name);
    for (const InterfaceAddress& one : interface.addresses) {
      text += StrCat(" ", one.address.host(), "/", one.prefix_bits);
    }
    text += interface.up ? " up" : " down";
    if (interface.bridge) text += ", bridge";
    if (interface.loopback) text += ", loopback";
  }
  return text;
}

StatusOr<bool> InsideCidr(const SocketAddress& address, const std::string& cidr) {
  const size_t slash = cidr.find('/');
  if (slash == std::string::npos) return InvalidArgumentError("\"", cidr, "\" is no CIDR");
  CRIA_ASSIGN_OR_RETURN(const SocketAddress network, ParseAddress(cidr.substr(0, slash), 0));
  const std::span<const uint8_t> net = BytesOf(network);
  int bits = -1;
  const char* const begin = cidr.data() + slash + 1;
  const char* const end = cidr.data() + cidr.size();
  const auto parsed = std::from_chars(begin, end, bits);
  if (parsed.ec != std::errc() || parsed.ptr != end || begin == end || bits < 0 ||
      bits > static_cast<int>(net.size()) * 8) {
    return InvalidArgumentError("\"", cidr, "\" is no CIDR: its prefix is not in [0, ",
                                net.size() * 8, "]");
  }
  if (address.family() != network.family()) return false;
  const std::span<const uint8_t> own = BytesOf(address);
  for (int bit = 0; bit < bits; ++bit) {
    const auto byte = static_cast<size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if (((own[byte] ^ net[byte]) & mask) != 0) return false;
  }
  return true;
}

StatusOr<std::string> ChooseAmong(std::span<const Interface> interfaces,
                                  const std::string& choice) {
  if (choice.find('/') == std::string::npos) {
    const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                    [&choice](const Interface& one) { return one.name == choice; });
    if (found == interfaces.end()) {
      return NothingUsable(StrCat("there is no interface \"", choice, "\""), interfaces);
    }
    const InterfaceAddress* best = BestAddress(*found);
    if (!found->up || best == nullptr) {
      return NothingUsable(
          StrCat("the interface \"", choice, "\" ", found->up ? "has no address" : "is down"),
          interfaces);
    }
    return best->address.host();
  }
  for (const bool bridges : {false, true}) {
    for (const Interface& interface : interfaces) {
      if (!interface.up || interface.bridge != bridges) continue;
      for (const InterfaceAddress& one : interface.addresses) {
        CRIA_ASSIGN_OR_RETURN(const bool inside, InsideCidr(one.address, choice));
        if (inside) return one.address.host();
      }
    }
  }
  // Without any interface the text itself has not been looked at yet.
  CRIA_RETURN_IF_ERROR(InsideCidr(SocketAddress{}, choice).status());
  return NothingUsable(StrCat("no interface that is up has an address in ", choice), interfaces);
}

StatusOr<SocketAddress> RouteSource(const SocketAddress& target) {
  const Fd fd(socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SocketError(errno, "socket");
  // Sends nothing: it only asks the routing table.
  if (connect(fd.get(), target.get(), target.length) != 0) {
    return SocketError(errno, StrCat("route to ", target.host()));
  }
  return LocalAddress(fd.get());
}

StatusOr<std::string> ChooseAddress(const std::string& choice, const std::string& master_host,
                                    int master_port) {
  CRIA_ASSIGN_OR_RETURN(const std::vector<Interface> interfaces, ListInterfaces());
  if (!choice.empty()) return ChooseAmong(interfaces, choice);
  CRIA_ASSIGN_OR_RETURN(const SocketAddress master,
                        ResolveHost(master_host, master_port, kResolveSeconds));
  const StatusOr<SocketAddress> source = RouteSource(master);
  if (!source.ok()) {
    return NothingUsable(
        StrCat("no way to the master ", master.host(), " (", Message(source.status()), ")"),
        interfaces);
  }
  const bool local_name = master_host == "localhost" || ParseAddress(master_host, 0).ok();
  if (!IsLoopback(*source) || local_name) return source->host();
  // The master's own name stands in its hosts file as 127.0.1.1; other hosts need a real address.
  for (const Interface& interface : interfaces) {
    if (!interface.up || interface.loopback || interface.bridge) continue;
    if (const InterfaceAddress* best = BestAddress(interface)) return best->address.host();
  }
  return source->host();
}

}  // namespace cria::comm

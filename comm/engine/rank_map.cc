#include "comm/engine/rank_map.h"

#include <unistd.h>

#include <array>
#include <fstream>

#include "base/hash.h"
#include "base/str.h"

namespace cria::comm {
namespace {

// The first line of a small file of /proc; empty when there is none.
std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "net:[4026531840]": ranks in two network namespaces play two hosts.
std::string NetworkNamespace() {
  std::array<char, 64> link = {};
  const ssize_t size = readlink("/proc/self/ns/net", link.data(), link.size());
  return size > 0 ? std::string(link.data(), static_cast<size_t>(size)) : "";
}

}  // namespace

std::string HostIdentity() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  // Short, because every rank gets every host's; the boot and the namespace only tell hosts apart.
  const std::string what = StrCat(FirstLine("/proc/sys/kernel/random/boot_id"), NetworkNamespace());
  return StrCat(name.data(), "/", HashHex(what).substr(0, 16));
}

}  // namespace cria::comm

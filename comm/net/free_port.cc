#include "comm/net/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"
#include "comm/net/fd.h"

namespace cria::comm {
namespace {

constexpr int kFirst = 10'000, kNumPorts = 20'000;

bool IsFree(int port) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return fd.valid() &&
         bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

StatusOr<int> FreePort() {
  static const uint64_t start = Hash64(StrCat(getpid(), " ", RealClock()->UnixSeconds()));
  static std::atomic<uint64_t> num_tried{0};
  for (int i = 0; i < kNumPorts; ++i) {
    const int port = kFirst + static_cast<int>((start + num_tried++) % kNumPorts);
    if (IsFree(port)) return port;
  }
  return ResourceExhaustedError("no free port in [", kFirst, ", ", kFirst + kNumPorts, ")");
}

}  // namespace cria::comm

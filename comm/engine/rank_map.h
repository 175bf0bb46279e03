// Who is where: one record a rank, gathered once by the rendezvous, the same on all ranks.
// Thread-safe: values.

#ifndef CRIA_COMM_ENGINE_RANK_MAP_H_
#define CRIA_COMM_ENGINE_RANK_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cria::comm {

struct RankInfo {
  // Ranks with the same text share memory: host name, boot id and network namespace.
  std::string host = {};
  // Where this rank's TCP endpoint listens: a numeric address and a port.
  std::string address = {};
  int port = 0;
  // The abstract unix socket of its shared-memory domain, without the leading zero byte.
  std::string shm_socket = {};
  int64_t pid = 0;
};

using RankMap = std::vector<RankInfo>;  // by world rank

// This machine's RankInfo::host.
std::string HostIdentity();

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_RANK_MAP_H_

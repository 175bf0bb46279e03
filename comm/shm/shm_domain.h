// A process's place in the shared memory of its host: one segment of its own, those of its peers
// mapped at first contact.
//
//   CRIA_ASSIGN_OR_RETURN(auto domain, ShmDomain::Create({}));
//   info.shm_socket = domain->socket_name();               // into the rank map
//   domain->Start(rank, rank_map);                         // after the rendezvous
//   CRIA_ASSIGN_OR_RETURN(auto transport, domain->OpenGroup(group, &failure));
//
// The segment is a memfd: it has no name, so nothing is left in /dev/shm however the process dies.
// It is handed to a peer over an abstract unix socket (SCM_RIGHTS); the connection stays, and its
// end is how a peer's death is noticed. The segment is large and sparse: memory is used as it is
// touched. Buffers that Allocate gives lie in it, so that collectives need no copy.
// Thread-safe. A domain outlives its transports and buffers.

#ifndef CRIA_COMM_SHM_SHM_DOMAIN_H_
#define CRIA_COMM_SHM_SHM_DOMAIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/engine/failure.h"
#include "comm/engine/rank_map.h"
#include "comm/engine/transport.h"

namespace cria::comm {

struct ShmOptions {
  int64_t segment_bytes = int64_t{64} << 30;  // address space, not memory
};

class ShmDomain {
 public:
  // ResourceExhausted when the kernel gives no segment or no file descriptor.
  static StatusOr<std::unique_ptr<ShmDomain>> Create(const ShmOptions& options);
  virtual ~ShmDomain() = default;

  virtual const std::string& socket_name() const = 0;
  virtual void Start(int world_rank, std::shared_ptr<const RankMap> rank_map) = 0;
  // No communication: peers are met at the first Run. `failure` outlives the transport.
  virtual StatusOr<std::unique_ptr<Transport>> OpenGroup(const GroupInfo& group,
                                                         FailureState* failure) = 0;
  // Memory in this process's segment, aligned to 64 bytes; ResourceExhausted when it is full.
  virtual StatusOr<std::unique_ptr<SharedBuffer>> Allocate(int64_t bytes) = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_SHM_DOMAIN_H_

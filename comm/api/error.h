// Errors of collectives: a Status whose message and payload name who, what and why.
//
//   const Status status = comm->AllReduce({...}).Wait();
//   if (const auto error = comm::GetCommError(status)) Blame(error->culprit);
//
// The message reads: rank 1 of "dp" (3 of the world): all_reduce #42, 400 bytes of float32: rank 0
// (world 2) passed 800 bytes of float32. Ranks are those of the group; the world's are beside them.
// Thread-safe: values.

#ifndef CRIA_COMM_API_ERROR_H_
#define CRIA_COMM_API_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace cria::comm {

enum class CommErrorKind : uint8_t {
  kMismatch,     // ranks called different operations: InvalidArgument
  kTimeout,      // the deadline passed: DeadlineExceeded
  kPeerLost,     // a peer's process or connection died: Unavailable
  kAborted,      // Abort was called, here or on a peer: Cancelled
  kBadArgument,  // this call alone is wrong: InvalidArgument
  kInternal,     // Internal
};

// "mismatch", "timeout", "peer lost", ...
const char* Name(CommErrorKind kind);

struct CommError {
  CommErrorKind kind = CommErrorKind::kInternal;
  std::string group = {};  // the communicator's name
  int rank = -1;           // who reports, in the group
  int world_rank = -1;
  int culprit = -1;  // who is to blame, in the group; -1 when nobody is known
  int culprit_world = -1;
  std::string operation = {};  // "all_reduce"; empty outside an operation
  uint64_t sequence = 0;       // 0 outside an operation
  int64_t bytes = -1;          // this rank's input bytes, -1 when it has none
  int64_t culprit_bytes = -1;
  std::string reason = {};  // what happened, a clause
};

// The Status of an error: code by kind, message as above, the fields as a payload.
Status ToStatus(const CommError& error);

// The fields of a Status that ToStatus made (also when annotated since); nothing for another.
std::optional<CommError> GetCommError(const Status& status);

}  // namespace cria::comm

#endif  // CRIA_COMM_API_ERROR_H_

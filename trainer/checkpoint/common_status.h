// One outcome for all ranks of something that each of them did.
//
//   CRIA_RETURN_IF_ERROR(CommonStatus(world, WriteMyPart()));
//
// Returns when all ranks have called it, or when the communicator's deadline is over: a barrier.
// Errors: of the ranks' errors the lowest rank's, on every rank, with its code and "rank N: "
// before its message (cut at 1 KiB); or the communicator's. Thread-compatible.

#ifndef CRIA_TRAINER_CHECKPOINT_COMMON_STATUS_H_
#define CRIA_TRAINER_CHECKPOINT_COMMON_STATUS_H_

#include <string>

#include "base/status.h"
#include "comm/api/communicator.h"

namespace cria::trainer {

// `world` may be null: one rank.
Status CommonStatus(comm::Communicator* world, const Status& mine);

// Rank 0's text on all ranks; cut at 4 KiB.
StatusOr<std::string> CommonText(comm::Communicator* world, const std::string& text);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECKPOINT_COMMON_STATUS_H_

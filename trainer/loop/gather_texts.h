// The texts of all ranks of a group, on all of them.
//
//   CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> by_rank, GatherTexts(mine, world));
//
// Bytes of any kind and length. Without a group (null) one's own. Errors are the communicator's.

#ifndef CRIA_TRAINER_LOOP_GATHER_TEXTS_H_
#define CRIA_TRAINER_LOOP_GATHER_TEXTS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"

namespace cria::trainer {

StatusOr<std::vector<std::string>> GatherTexts(const std::string& mine, comm::Communicator* group);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_GATHER_TEXTS_H_

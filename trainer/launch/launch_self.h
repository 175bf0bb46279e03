// This program again, as the ranks of a job on this machine: for commands that compare layouts.
//
//   CRIA_RETURN_IF_ERROR(LaunchSelf({"layouts", "--folder", folder}, /*ranks=*/8));
//
// The ranks run quietly (CRIA_LOG=error, unless it is set); rank 0 writes to our standard output.
// Single-threaded, as Launch is.

#ifndef CRIA_TRAINER_LAUNCH_LAUNCH_SELF_H_
#define CRIA_TRAINER_LAUNCH_LAUNCH_SELF_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

// OK when all ranks ended with status 0; InvalidArgument when the first that failed ended with 2,
// as for a mistake in its arguments; else Internal, naming that rank. Errors of Launch.
Status LaunchSelf(const std::vector<std::string>& arguments, int ranks);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LAUNCH_LAUNCH_SELF_H_

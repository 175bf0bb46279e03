// PruneCheckpoints: which checkpoints may go.

#include <algorithm>

#include "base/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/step_folder.h"

namespace cria::trainer {
namespace {

// The index of the newest that verifies; folders.size() when none does.
size_t FirstVerified(const std::vector<StepFolder>& folders) {
  for (size_t i = 0; i < folders.size(); ++i) {
    if (LoadCheckpoint(folders[i].path).ok()) return i;
  }
  return folders.size();
}

}  // namespace

Status PruneCheckpoints(const std::string& checkpoints_dir, int keep_last, int64_t protect_step) {
  if (!Exists(checkpoints_dir)) return OkStatus();
  CRIA_RETURN_IF_ERROR(RemoveLeftovers(checkpoints_dir));
  if (keep_last <= 0) return OkStatus();
  CRIA_ASSIGN_OR_RETURN(const std::vector<StepFolder> folders, ListStepFolders(checkpoints_dir));
  if (folders.size() <= static_cast<size_t>(keep_last)) return OkStatus();
  const size_t verified = FirstVerified(folders);
  if (verified == folders.size()) {
    // It may be the disk that fails and not the files: nothing is thrown away on that ground.
    return DataLossError("prune ", checkpoints_dir, ": none of the ", folders.size(),
                         " checkpoints is complete and unaltered; all are kept");
  }
  for (size_t i = static_cast<size_t>(keep_last); i < folders.size(); ++i) {
    if (i == verified || folders[i].step == protect_step) continue;
    CRIA_RETURN_IF_ERROR(RemoveStepFolder(checkpoints_dir, folders[i]));
  }
  return OkStatus();
}

}  // namespace cria::trainer

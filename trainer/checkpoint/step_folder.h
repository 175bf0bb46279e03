// The names and locks of the folders below "checkpoints/". Private to this folder.
//
//   step_100                a complete checkpoint
//   step_100.old            what step_100 was before it was replaced, on a file system that cannot
//                           exchange two names; as good as a checkpoint until it is pruned
//   step_100.tmp-4711-0     under construction by process 4711, or left by it, or being removed
//
// Whoever makes a temporary folder holds a lock (flock) on it, which the kernel drops when the
// process ends: a temporary folder that can be locked is a leftover. A second lock, on
// "checkpoints/" itself, is held for moments around creation and renames, so that nobody takes a
// folder for a leftover in the instant before its maker locks it. On a file system without locks
// nothing waits, and leftovers stay. Thread-safe.

#ifndef CRIA_TRAINER_CHECKPOINT_STEP_FOLDER_H_
#define CRIA_TRAINER_CHECKPOINT_STEP_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

struct StepFolder {
  int64_t step = 0;
  bool displaced = false;  // step_N.old
  std::string path;
};

// "<checkpoints_dir>/step_<step>".
std::string StepFolderPath(const std::string& checkpoints_dir, int64_t step);

// "step_100" and "step_100.old" as a StepFolder with `path` empty; false for any other name.
bool ParseStepName(std::string_view name, StepFolder* folder);

// The checkpoints of a folder, newest first, a displaced one after its successor. Empty when the
// folder does not exist.
StatusOr<std::vector<StepFolder>> ListStepFolders(const std::string& checkpoints_dir);

// An exclusive lock on a folder, until destruction or the end of the process.
class FolderLock {
 public:
  // Waits for another holder for at most 30 s, then DeadlineExceeded.
  static StatusOr<FolderLock> Acquire(const std::string& path);

  // Null when another holds it or when the file system has no locks.
  static std::unique_ptr<FolderLock> TryAcquire(const std::string& path);

  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_;
};

// A checkpoint under construction. Destroyed before Publish, it removes its folder.
class TempStepFolder {
 public:
  static StatusOr<std::unique_ptr<TempStepFolder>> Create(const std::string& checkpoints_dir,
                                                          int64_t step);
  ~TempStepFolder();
  TempStepFolder(const TempStepFolder&) = delete;
  TempStepFolder& operator=(const TempStepFolder&) = delete;

  const std::string& path() const { return path_; }

  // Names it step_N, in the place of what is called so now, durable on return. At most once.
  Status Publish();

 private:
  TempStepFolder(std::string checkpoints_dir, int64_t step, std::string path, FolderLock lock);

  // For file systems that cannot exchange two names.
  Status PublishByRenames();

  const std::string checkpoints_dir_;
  const int64_t step_;
  const std::string final_path_;
  const std::string path_;
  const FolderLock lock_;
  bool published_ = false;
};

// Removes a checkpoint: first it loses its name, so that a kill in the middle leaves a leftover and
// not a damaged checkpoint.
Status RemoveStepFolder(const std::string& checkpoints_dir, const StepFolder& folder);

// Removes the temporary folders whose makers are gone.
Status RemoveLeftovers(const std::string& checkpoints_dir);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECKPOINT_STEP_FOLDER_H_

// A folder for what a benchmark hands to a peer; it goes when the object does.
//
//   CRIA_ASSIGN_OR_RETURN(const auto scratch, ScratchFolder::Create());
//   WriteFileAtomic(scratch->File("text"), text);
//
// Thread-compatible.

#ifndef CRIA_TRAINER_BENCH_SCRATCH_FOLDER_H_
#define CRIA_TRAINER_BENCH_SCRATCH_FOLDER_H_

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace cria::trainer {

class ScratchFolder {
 public:
  // Below TMPDIR, or /tmp. The file system's error.
  static StatusOr<std::unique_ptr<ScratchFolder>> Create();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // The path of a file in it.
  std::string File(const std::string& name) const;

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_SCRATCH_FOLDER_H_

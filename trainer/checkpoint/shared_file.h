// A file of known size that several ranks fill in place. Private to this folder.
//
//   CRIA_RETURN_IF_ERROR(SharedFile::Create(path, header, file_bytes));     // one rank
//   CRIA_ASSIGN_OR_RETURN(auto file, SharedFile::Open(path));               // then each
//   CRIA_RETURN_IF_ERROR(file->WriteAt(offset, bytes));
//   CRIA_RETURN_IF_ERROR(file->Sync());
//
// Ranks write apart from each other, each byte once. Errors are Status with the path and the
// system's reason. Thread-compatible.

#ifndef CRIA_TRAINER_CHECKPOINT_SHARED_FILE_H_
#define CRIA_TRAINER_CHECKPOINT_SHARED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cria::trainer {

class SharedFile {
 public:
  // A new file of `bytes` bytes, `head` at its start, the rest zeros. Where the file system can,
  // the room is reserved now: a disk that is too small shows here.
  static Status Create(const std::string& path, std::string_view head, uint64_t bytes);

  // NotFound when there is none.
  static StatusOr<std::unique_ptr<SharedFile>> Open(const std::string& path);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  Status WriteAt(uint64_t offset, std::string_view bytes);
  Status Sync();

 private:
  SharedFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECKPOINT_SHARED_FILE_H_

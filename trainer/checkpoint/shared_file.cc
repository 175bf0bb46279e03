#include "trainer/checkpoint/shared_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace cria::trainer {

Status SharedFile::Create(const std::string& path, std::string_view head, uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return ErrnoError(errno, StrCat("create ", path));
  const std::unique_ptr<SharedFile> file(new SharedFile(path, fd));
  // Not posix_fallocate, which writes where the file system cannot reserve.
  int result = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
    result = ::ftruncate(fd, static_cast<off_t>(bytes));
  }
  if (result != 0) return ErrnoError(errno, StrCat("reserve ", bytes, " bytes for ", path));
  return file->WriteAt(0, head);
}

StatusOr<std::unique_ptr<SharedFile>> SharedFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, StrCat("open ", path));
  return std::unique_ptr<SharedFile>(new SharedFile(path, fd));
}

SharedFile::~SharedFile() { ::close(fd_); }

Status SharedFile::WriteAt(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return ErrnoError(errno, StrCat("write ", bytes.size(), " bytes at ", offset, " of ", path_));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return OkStatus();
}

Status SharedFile::Sync() {
  if (::fsync(fd_) != 0) return ErrnoError(errno, StrCat("sync ", path_));
  return OkStatus();
}

}  // namespace cria::trainer

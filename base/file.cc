#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace cria {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int kTempNameAttempts = 100;

// An open descriptor, closed at the end of the scope.
class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

int OpenRetrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Writes all of `bytes` at `offset`. The message counts what the system took before it failed.
Status WriteAllAt(int fd, const std::string& path, uint64_t offset, std::string_view bytes) {
  const size_t total = bytes.size();
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset + total - bytes.size()));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return ErrnoError(errno, StrCat("write ", path, " at ", offset, ": took ",
                                      total - bytes.size(), " of ", total, " bytes"));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return OkStatus();
}

// A destination that is there must be a regular file: a rename would replace a device or a socket.
Status CheckReplaceable(const std::string& path) {
  if (path.empty()) return InvalidArgumentError("write a file: the path is empty");
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return OkStatus();
    return ErrnoError(errno, StrCat("write ", path));
  }
  if (S_ISREG(info.st_mode)) return OkStatus();
  return InvalidArgumentError("write ", path, ": it exists and is ",
                              S_ISDIR(info.st_mode) ? "a folder" : "not a regular file");
}

}  // namespace

StatusOr<std::string> ReadFile(const std::string& path, uint64_t bytes_max) {
  const ScopedFd fd(OpenRetrying(path, O_RDONLY));
  if (fd.get() < 0) return ErrnoError(errno, StrCat("open ", path));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoError(errno, StrCat("stat ", path));
  if (S_ISDIR(info.st_mode)) return InvalidArgumentError("read ", path, ": it is a folder");
  std::string out;
  if (S_ISREG(info.st_mode)) {
    out.reserve(std::min<uint64_t>(static_cast<uint64_t>(info.st_size), bytes_max) + 1);
  }
  while (true) {
    const size_t have = out.size();
    const size_t step = std::max<size_t>(out.capacity() - have, 4096);
    out.resize(have + step);
    const ssize_t got = ::read(fd.get(), out.data() + have, step);
    out.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, StrCat("read ", path, " at ", have));
    if (out.size() > bytes_max) {
      return ResourceExhaustedError("read ", path, ": more than the limit of ", bytes_max,
                                    " bytes");
    }
    if (got == 0) return out;
  }
}

Status WriteFileAtomic(const std::string& path, std::string_view bytes) {
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  CRIA_RETURN_IF_ERROR(file->Append(bytes));
  return file->Commit();
}

StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  CRIA_RETURN_IF_ERROR(CheckReplaceable(path));
  static std::atomic<uint64_t> next{0};
  for (int attempt = 0; attempt < kTempNameAttempts; ++attempt) {
    const std::string temp_path = StrCat(path, ".tmp.", ::getpid(), ".", next.fetch_add(1));
    const int fd = OpenRetrying(temp_path, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (fd >= 0) return std::unique_ptr<AtomicFile>(new AtomicFile(path, temp_path, fd));
    if (errno != EEXIST) return ErrnoError(errno, StrCat("create ", temp_path));
  }
  return AlreadyExistsError("create ", path, ".tmp.*: ", kTempNameAttempts,
                            " names in a row are taken by leftovers; remove them");
}

AtomicFile::AtomicFile(std::string path, std::string temp_path, int fd)
    : path_(std::move(path)), temp_path_(std::move(temp_path)), fd_(fd) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temp_path_.c_str());
}

Status AtomicFile::Fail(Status error) {
  error_ = std::move(error);
  return error_;
}

Status AtomicFile::Flush() {
  Status status = WriteAllAt(fd_, temp_path_, size_ - buffer_.size(), buffer_);
  if (!status.ok()) return Fail(std::move(status));
  buffer_.clear();
  return OkStatus();
}

Status AtomicFile::Append(std::string_view bytes) {
  CRIA_CHECK(fd_ >= 0, "append to ", path_, " after its commit");
  CRIA_RETURN_IF_ERROR(error_);
  if (buffer_.size() + bytes.size() <= kBufferBytes) {
    buffer_.append(bytes);
    size_ += bytes.size();
    return OkStatus();
  }
  CRIA_RETURN_IF_ERROR(Flush());
  Status status = WriteAllAt(fd_, temp_path_, size_, bytes);
  if (!status.ok()) return Fail(std::move(status));
  size_ += bytes.size();
  return OkStatus();
}

Status AtomicFile::WriteAt(uint64_t offset, std::string_view bytes) {
  CRIA_CHECK(fd_ >= 0, "write to ", path_, " after its commit");
  CRIA_CHECK(offset <= size_ && bytes.size() <= size_ - offset, "write ", bytes.size(),
             " bytes at ", offset, " of ", size_);
  CRIA_RETURN_IF_ERROR(error_);
  CRIA_RETURN_IF_ERROR(Flush());
  Status status = WriteAllAt(fd_, temp_path_, offset, bytes);
  if (!status.ok()) return Fail(std::move(status));
  return OkStatus();
}

Status AtomicFile::Commit() {
  CRIA_CHECK(fd_ >= 0, "second commit of ", path_);
  CRIA_RETURN_IF_ERROR(error_);
  CRIA_RETURN_IF_ERROR(Flush());
  if (::fsync(fd_) != 0) return Fail(ErrnoError(errno, StrCat("sync ", temp_path_)));
  if (::rename(temp_path_.c_str(), path_.c_str()) != 0) {
    return Fail(ErrnoError(errno, StrCat("rename ", temp_path_, " to ", path_)));
  }
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) return Fail(ErrnoError(errno, StrCat("close ", path_)));
  return SyncDir(DirName(path_));
}

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const ScopedFd fd(OpenRetrying(path, O_RDONLY));
  if (fd.get() < 0) return ErrnoError(errno, StrCat("open ", path));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoError(errno, StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) return InvalidArgumentError("map ", path, ": not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile();
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoError(errno, StrCat("map ", size, " bytes of ", path));
  return MappedFile(static_cast<const char*>(data), size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Status MakeDirs(const std::string& path) {
  if (path.empty()) return InvalidArgumentError("make a folder: the path is empty");
  if (IsDir(path)) return OkStatus();
  const std::string parent = DirName(path);
  if (parent != path) CRIA_RETURN_IF_ERROR(MakeDirs(parent));
  if (::mkdir(path.c_str(), 0777) == 0) return SyncDir(parent);
  const int error_number = errno;
  if (error_number == EEXIST && IsDir(path)) return OkStatus();
  return ErrnoError(error_number, StrCat("make the folder ", path));
}

Status SyncDir(const std::string& path) {
  const ScopedFd fd(OpenRetrying(path, O_RDONLY | O_DIRECTORY));
  if (fd.get() < 0) return ErrnoError(errno, StrCat("open the folder ", path));
  // Some file systems cannot sync a folder and say EINVAL: there is nothing more to do there.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    return ErrnoError(errno, StrCat("sync the folder ", path));
  }
  return OkStatus();
}

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

bool IsDir(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

StatusOr<uint64_t> FileSize(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoError(errno, StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) return InvalidArgumentError("stat ", path, ": not a regular file");
  return static_cast<uint64_t>(info.st_size);
}

StatusOr<std::vector<std::string>> ListDir(const std::string& path) {
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr) return ErrnoError(errno, StrCat("list the folder ", path));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error_number = errno;
  ::closedir(dir);
  if (error_number != 0) return ErrnoError(error_number, StrCat("list the folder ", path));
  std::sort(names.begin(), names.end());
  return names;
}

Status RemoveAll(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return ErrnoError(error.value(), StrCat("remove ", path));
  return OkStatus();
}

Status Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoError(errno, StrCat("rename ", from, " to ", to));
  }
  return SyncDir(DirName(to));
}

std::string JoinPath(std::string_view a, std::string_view b) {
  if (a.empty() || (!b.empty() && b.front() == '/')) return std::string(b);
  if (b.empty()) return std::string(a);
  return a.back() == '/' ? StrCat(a, b) : StrCat(a, "/", b);
}

namespace {

// Without trailing slashes; "/" stays.
std::string_view Trimmed(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

}  // namespace

std::string DirName(std::string_view path) {
  path = Trimmed(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(Trimmed(path.substr(0, slash)));
}

std::string BaseName(std::string_view path) {
  path = Trimmed(path);
  if (path == "/") return "/";
  return std::string(path.substr(path.rfind('/') + 1));
}

}  // namespace cria

// Files: whole reads, crash-safe writes, read-only maps, folders.
//
//   CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile("job.yaml"));
//   CRIA_RETURN_IF_ERROR(WriteFileAtomic("run/config.yaml", text));
//
//   CRIA_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create("shard.bin"));
//   CRIA_RETURN_IF_ERROR(file->Append(header));
//   CRIA_RETURN_IF_ERROR(file->Append(tokens));
//   CRIA_RETURN_IF_ERROR(file->Commit());  // now, and only now, shard.bin exists
//
// Everybody who writes a file that outlives the process uses the atomic writers: after a crash, a
// kill or a full disk, the path holds either its old content or the whole new one. On success the
// bytes are on the disk (fsync of the file and of its folder). A killed writer can leave a
// "<name>.tmp.<pid>.<n>" beside it, which nobody reads.
// Errors are Status with the path and the system's reason: NotFound, PermissionDenied,
// ResourceExhausted (disk full, quota), InvalidArgument (not a regular file), Internal.
// Functions are thread-safe; the classes are thread-compatible.

#ifndef CRIA_BASE_FILE_H_
#define CRIA_BASE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria {

// ReadFile refuses more than this unless told otherwise: a device or a runaway file is an error,
// not the end of the memory.
inline constexpr uint64_t kReadFileBytesMax = uint64_t{4} << 30;

// The whole content. Also reads pipes. Error above `bytes_max`: ResourceExhausted.
StatusOr<std::string> ReadFile(const std::string& path, uint64_t bytes_max = kReadFileBytesMax);

// Replaces `path` by `bytes`, whole or not at all, and durable on return.
Status WriteFileAtomic(const std::string& path, std::string_view bytes);

// A file under construction beside its destination. Nothing is visible at `path` before Commit.
// The first error sticks: every later call returns it, and Commit never publishes a partial file.
class AtomicFile {
 public:
  static StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);

  // Without a Commit, removes what was written; the old content of `path` stays.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends; buffered, so a failure may show in a later call.
  Status Append(std::string_view bytes);

  // Overwrites [offset, offset + bytes.size()), all of it already appended: for a header whose
  // counts are known last.
  Status WriteAt(uint64_t offset, std::string_view bytes);

  // The bytes appended so far.
  uint64_t size() const { return size_; }

  // Flushes, syncs, renames over `path`, syncs the folder. At most once.
  Status Commit();

 private:
  AtomicFile(std::string path, std::string temp_path, int fd);
  Status Flush();
  Status Fail(Status error);

  const std::string path_;
  const std::string temp_path_;
  int fd_;  // -1 after Commit
  uint64_t size_ = 0;
  std::string buffer_;
  Status error_;
};

// A regular file mapped read-only; an empty file gives empty bytes. Pages are read when touched.
// The file must not be truncated while it is mapped (reading past the new end raises SIGBUS): map
// only files that are replaced by rename, as the writers above do.
class MappedFile {
 public:
  static StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // Valid as long as this object (or the one that it was moved into) lives.
  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}

  const char* data_ = nullptr;
  size_t size_ = 0;
};

// Creates `path` and its missing parents, durable on return. OK when it is a folder already.
Status MakeDirs(const std::string& path);

// Makes creations, removals and renames in the folder `path` durable.
Status SyncDir(const std::string& path);

bool Exists(const std::string& path);
bool IsDir(const std::string& path);

// The size of a regular file.
StatusOr<uint64_t> FileSize(const std::string& path);

// The names in a folder, sorted bytewise, without "." and "..".
StatusOr<std::vector<std::string>> ListDir(const std::string& path);

// Removes a file or a folder with all that is in it; OK when there is none. Does not follow links.
Status RemoveAll(const std::string& path);

// Renames and syncs the destination's folder. Replaces a file, or an empty folder by a folder.
Status Rename(const std::string& from, const std::string& to);

// "a/b"; `b` alone when it is absolute or `a` is empty.
std::string JoinPath(std::string_view a, std::string_view b);

// "x/y/z" -> "x/y"; "z" -> "."; "/z" -> "/". Trailing slashes don't count.
std::string DirName(std::string_view path);

// "x/y/z" -> "z"; "/" -> "/".
std::string BaseName(std::string_view path);

}  // namespace cria

#endif  // CRIA_BASE_FILE_H_

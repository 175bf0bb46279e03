#include "trainer/checkpoint/step_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"

namespace cria::trainer {
namespace {

constexpr char kStepPrefix[] = "step_";
constexpr char kDisplacedSuffix[] = ".old";
constexpr char kTempMark[] = ".tmp-";
constexpr double kLockSecondsMax = 30;
constexpr int kTempNameAttempts = 100;

bool IsTempName(std::string_view name) {
  return name.starts_with(kStepPrefix) && name.find(kTempMark) != std::string_view::npos;
}

std::string NextTempPath(const std::string& checkpoints_dir, int64_t step) {
  static std::atomic<uint64_t> next{0};
  return StrCat(StepFolderPath(checkpoints_dir, step), kTempMark, ::getpid(), "-",
                next.fetch_add(1));
}

bool HasNoLocks(int error_number) {
  return error_number == ENOLCK || error_number == ENOSYS || error_number == EOPNOTSUPP ||
         error_number == EINVAL;
}

// Renames and syncs the folder of both.
Status MoveWithin(const std::string& checkpoints_dir, const std::string& from,
                  const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoError(errno, StrCat("rename ", from, " to ", to));
  }
  return SyncDir(checkpoints_dir);
}

}  // namespace

std::string StepFolderPath(const std::string& checkpoints_dir, int64_t step) {
  return JoinPath(checkpoints_dir, StrCat(kStepPrefix, step));
}

bool ParseStepName(std::string_view name, StepFolder* folder) {
  if (!name.starts_with(kStepPrefix)) return false;
  name.remove_prefix(sizeof(kStepPrefix) - 1);
  folder->displaced = name.ends_with(kDisplacedSuffix);
  if (folder->displaced) name.remove_suffix(sizeof(kDisplacedSuffix) - 1);
  if (name.empty() || (name.size() > 1 && name[0] == '0') || name[0] == '-') return false;
  const auto result = std::from_chars(name.data(), name.data() + name.size(), folder->step);
  return result.ec == std::errc() && result.ptr == name.data() + name.size();
}

StatusOr<std::vector<StepFolder>> ListStepFolders(const std::string& checkpoints_dir) {
  std::vector<StepFolder> folders;
  if (!Exists(checkpoints_dir)) return folders;
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(checkpoints_dir));
  for (const std::string& name : names) {
    StepFolder folder;
    if (!ParseStepName(name, &folder)) continue;
    folder.path = JoinPath(checkpoints_dir, name);
    folders.push_back(std::move(folder));
  }
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) {
    return std::tuple(-a.step, a.displaced) < std::tuple(-b.step, b.displaced);
  });
  return folders;
}

StatusOr<FolderLock> FolderLock::Acquire(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, StrCat("open the folder ", path));
  FolderLock lock(fd);
  const double deadline = RealClock()->MonotonicSeconds() + kLockSecondsMax;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (HasNoLocks(errno)) break;
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoError(errno, StrCat("lock ", path));
    if (RealClock()->MonotonicSeconds() > deadline) {
      return DeadlineExceededError("lock ", path, ": another process has held it for over ",
                                   kLockSecondsMax, " s");
    }
    const timespec pause = {.tv_sec = 0, .tv_nsec = 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return lock;
}

std::unique_ptr<FolderLock> FolderLock::TryAcquire(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  auto lock = std::unique_ptr<FolderLock>(new FolderLock(fd));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return nullptr;
  return lock;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

StatusOr<std::unique_ptr<TempStepFolder>> TempStepFolder::Create(const std::string& checkpoints_dir,
                                                                 int64_t step) {
  CRIA_ASSIGN_OR_RETURN(const FolderLock names, FolderLock::Acquire(checkpoints_dir));
  for (int attempt = 0; attempt < kTempNameAttempts; ++attempt) {
    std::string path = NextTempPath(checkpoints_dir, step);
    if (::mkdir(path.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;  // left by an earlier process of our number
      return ErrnoError(errno, StrCat("make the folder ", path));
    }
    StatusOr<FolderLock> lock = FolderLock::Acquire(path);
    if (!lock.ok()) {
      ::rmdir(path.c_str());
      return lock.status();
    }
    return std::unique_ptr<TempStepFolder>(
        new TempStepFolder(checkpoints_dir, step, std::move(path), std::move(*lock)));
  }
  return AlreadyExistsError("make the folder ", StepFolderPath(checkpoints_dir, step), kTempMark,
                            "*: ", kTempNameAttempts, " names in a row are taken by leftovers");
}

TempStepFolder::TempStepFolder(std::string checkpoints_dir, int64_t step, std::string path,
                               FolderLock lock)
    : checkpoints_dir_(std::move(checkpoints_dir)),
      step_(step),
      final_path_(StepFolderPath(checkpoints_dir_, step)),
      path_(std::move(path)),
      lock_(std::move(lock)) {}

TempStepFolder::~TempStepFolder() {
  // An error leaves a leftover, which the next prune tries again.
  if (!published_) (void)RemoveAll(path_);
}

Status TempStepFolder::Publish() {
  CRIA_CHECK(!published_, "second publication of ", final_path_);
  CRIA_ASSIGN_OR_RETURN(const FolderLock names, FolderLock::Acquire(checkpoints_dir_));
  if (!Exists(final_path_)) {
    CRIA_RETURN_IF_ERROR(MoveWithin(checkpoints_dir_, path_, final_path_));
    published_ = true;
    return OkStatus();
  }
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final_path_.c_str(), RENAME_EXCHANGE) == 0) {
    // path_ is the old checkpoint from here on, which the destructor removes.
    return SyncDir(checkpoints_dir_);
  }
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    return ErrnoError(errno, StrCat("exchange ", path_, " and ", final_path_));
  }
  return PublishByRenames();
}

Status TempStepFolder::PublishByRenames() {
  // While step_N has no bearer, step_N.old stands in for it: what step_N is now, or, after a kill
  // between these renames in an earlier save, what is called so already.
  const std::string displaced = final_path_ + kDisplacedSuffix;
  const bool has_stand_in = Exists(displaced);
  const std::string aside = has_stand_in ? NextTempPath(checkpoints_dir_, step_) : displaced;
  CRIA_RETURN_IF_ERROR(MoveWithin(checkpoints_dir_, final_path_, aside));
  const Status moved = MoveWithin(checkpoints_dir_, path_, final_path_);
  if (!moved.ok()) {
    (void)::rename(aside.c_str(), final_path_.c_str());  // if not, there is the stand-in
    return moved;
  }
  if (has_stand_in) CRIA_RETURN_IF_ERROR(RemoveAll(aside));
  // As after an exchange: path_ is the old checkpoint, which the destructor removes.
  return MoveWithin(checkpoints_dir_, displaced, path_);
}

Status RemoveStepFolder(const std::string& checkpoints_dir, const StepFolder& folder) {
  const std::string doomed = NextTempPath(checkpoints_dir, folder.step);
  {
    CRIA_ASSIGN_OR_RETURN(const FolderLock names, FolderLock::Acquire(checkpoints_dir));
    CRIA_RETURN_IF_ERROR(MoveWithin(checkpoints_dir, folder.path, doomed));
  }
  return RemoveAll(doomed);
}

Status RemoveLeftovers(const std::string& checkpoints_dir) {
  struct Leftover {
    std::string path;
    std::unique_ptr<FolderLock> lock;  // nobody else removes it meanwhile
  };
  std::vector<Leftover> leftovers;
  {
    CRIA_ASSIGN_OR_RETURN(const FolderLock names, FolderLock::Acquire(checkpoints_dir));
    CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> entries, ListDir(checkpoints_dir));
    for (const std::string& name : entries) {
      if (!IsTempName(name)) continue;
      std::string path = JoinPath(checkpoints_dir, name);
      std::unique_ptr<FolderLock> lock = FolderLock::TryAcquire(path);
      if (lock != nullptr) leftovers.push_back({std::move(path), std::move(lock)});
    }
  }
  for (const Leftover& leftover : leftovers) CRIA_RETURN_IF_ERROR(RemoveAll(leftover.path));
  return OkStatus();
}

}  // namespace cria::trainer

#include "base/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"

namespace cria {
namespace {

StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return StatusCode::kResourceExhausted;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
      return StatusCode::kInvalidArgument;
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return StatusCode::kUnavailable;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

Status ErrnoError(int error_number, const std::string& what) {
  return Status(CodeOfErrno(error_number), StrCat(what, ": ", std::strerror(error_number)));
}

std::string Message(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

Status Annotate(const Status& status, const std::string& context) {
  if (status.ok()) return status;
  Status annotated(status.code(), StrCat(context, ": ", Message(status)));
  status.ForEachPayload([&annotated](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

int ExitCode(const Status& status) {
  if (status.ok()) return 0;
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace cria

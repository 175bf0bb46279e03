// Errors of the world (a peer, a disk, a config, a user) as values: absl::Status, two macros.
//
//   Status Load(const std::string& path) {
//     CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
//     if (text.empty()) return DataLossError("load ", path, ": the file is empty");
//     CRIA_RETURN_IF_ERROR(Parse(text));
//     return OkStatus();
//   }
//
// A message says what failed, with which values, on which object: "read chunk 17 of ckpt/step_100:
// got 512 of 4096 bytes". Broken invariants of ours are no Status: see base/check.h.
// Which code: InvalidArgument for what a user wrote (config, flag), DataLoss for a damaged file,
// NotFound, AlreadyExists, ResourceExhausted (disk full, over a limit), Unavailable (peer, try
// again), DeadlineExceeded, FailedPrecondition, Internal.
// Thread-safe as values are.

#ifndef CRIA_BASE_STATUS_H_
#define CRIA_BASE_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/str.h"

namespace cria {

using absl::OkStatus;
using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

// The error of the given code whose message is StrCat(parts...).
#define CRIA_STATUS_MAKER(Name)                           \
  template <typename... Parts>                            \
  Status Name##Error(const Parts&... parts) {             \
    return Status(StatusCode::k##Name, StrCat(parts...)); \
  }
CRIA_STATUS_MAKER(AlreadyExists)
CRIA_STATUS_MAKER(Cancelled)
CRIA_STATUS_MAKER(DataLoss)
CRIA_STATUS_MAKER(DeadlineExceeded)
CRIA_STATUS_MAKER(FailedPrecondition)
CRIA_STATUS_MAKER(Internal)
CRIA_STATUS_MAKER(InvalidArgument)
CRIA_STATUS_MAKER(NotFound)
CRIA_STATUS_MAKER(OutOfRange)
CRIA_STATUS_MAKER(PermissionDenied)
CRIA_STATUS_MAKER(ResourceExhausted)
CRIA_STATUS_MAKER(Unavailable)
CRIA_STATUS_MAKER(Unimplemented)
#undef CRIA_STATUS_MAKER

// The Status of a failed system call: "<what>: <strerror>", with the code that fits `error_number`
// (ENOENT NotFound, EACCES/EROFS PermissionDenied, ENOSPC/EDQUOT ResourceExhausted, ...).
Status ErrnoError(int error_number, const std::string& what);

// The message alone, as a std::string.
std::string Message(const Status& status);

// The same code with "<context>: " before the message; OK stays OK.
Status Annotate(const Status& status, const std::string& context);

// The exit status of a program that ends with `status`: 0 OK, 2 InvalidArgument (usage, config),
// 1 anything else.
int ExitCode(const Status& status);

}  // namespace cria

// Returns from the enclosing function when `expr`, a Status, is an error.
#define CRIA_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                 \
    if (::cria::Status cria_status_ = (expr); !cria_status_.ok()) return cria_status_; \
  } while (false)

// `target` = the value of `expr`, a StatusOr; returns its error otherwise. An expression with a
// top-level comma in `target` needs a type alias.
#define CRIA_ASSIGN_OR_RETURN(target, ...) \
  CRIA_ASSIGN_OR_RETURN_(CRIA_CONCAT_(cria_value_, __LINE__), target, __VA_ARGS__)
#define CRIA_ASSIGN_OR_RETURN_(holder, target, ...)    \
  auto holder = (__VA_ARGS__);                         \
  if (!holder.ok()) return std::move(holder).status(); \
  target = std::move(holder).value()
#define CRIA_CONCAT_(a, b) CRIA_CONCAT_INNER_(a, b)
#define CRIA_CONCAT_INNER_(a, b) a##b

#endif  // CRIA_BASE_STATUS_H_

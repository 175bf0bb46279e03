#include "comm/api/error.h"

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "base/str.h"

namespace cria::comm {
namespace {

constexpr char kPayloadUrl[] = "cria.dev/comm-error";
constexpr std::array<const char*, 6> kKindNames = {"mismatch", "timeout",      "peer lost",
                                                   "aborted",  "bad argument", "internal"};

StatusCode CodeOf(CommErrorKind kind) {
  switch (kind) {
    case CommErrorKind::kMismatch:
    case CommErrorKind::kBadArgument:
      return StatusCode::kInvalidArgument;
    case CommErrorKind::kTimeout:
      return StatusCode::kDeadlineExceeded;
    case CommErrorKind::kPeerLost:
      return StatusCode::kUnavailable;
    case CommErrorKind::kAborted:
      return StatusCode::kCancelled;
    case CommErrorKind::kInternal:
      break;
  }
  return StatusCode::kInternal;
}

std::string WorldSuffix(int world_rank) {
  return world_rank < 0 ? "" : StrCat(" (world ", world_rank, ")");
}

// The payload: one field a line; the free texts stand last and hold no newline of ours.
constexpr char kSeparator = '\x1f';

}  // namespace

const char* Name(CommErrorKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

Status ToStatus(const CommError& error) {
  std::string message =
      StrCat("rank ", error.rank, " of \"", error.group, "\"", WorldSuffix(error.world_rank));
  if (!error.operation.empty()) {
    message += StrCat(": ", error.operation, " #", error.sequence);
    if (error.bytes >= 0) message += StrCat(", ", error.bytes, " bytes");
  }
  message += StrCat(": ", Name(error.kind), ": ", error.reason);
  if (error.culprit >= 0) {
    message += StrCat("; culprit: rank ", error.culprit, WorldSuffix(error.culprit_world));
    if (error.culprit_bytes >= 0) message += StrCat(" with ", error.culprit_bytes, " bytes");
  }
  Status status(CodeOf(error.kind), message);
  std::string payload;
  for (const int64_t number :
       {static_cast<int64_t>(error.kind), int64_t{error.rank}, int64_t{error.world_rank},
        int64_t{error.culprit}, int64_t{error.culprit_world}, static_cast<int64_t>(error.sequence),
        error.bytes, error.culprit_bytes}) {
    payload += StrCat(number) + kSeparator;
  }
  payload += error.group + kSeparator + error.operation + kSeparator + error.reason;
  status.SetPayload(kPayloadUrl, absl::Cord(payload));
  return status;
}

std::optional<CommError> GetCommError(const Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload) return std::nullopt;
  const std::string text(*payload);
  std::vector<std::string> fields;
  size_t start = 0;
  while (fields.size() < 10) {
    const size_t end = text.find(kSeparator, start);
    if (end == std::string::npos) return std::nullopt;
    fields.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  const auto number = [&fields](size_t i) { return std::strtoll(fields[i].c_str(), nullptr, 10); };
  CommError error;
  error.kind = static_cast<CommErrorKind>(number(0));
  error.rank = static_cast<int>(number(1));
  error.world_rank = static_cast<int>(number(2));
  error.culprit = static_cast<int>(number(3));
  error.culprit_world = static_cast<int>(number(4));
  error.sequence = static_cast<uint64_t>(number(5));
  error.bytes = number(6);
  error.culprit_bytes = number(7);
  error.group = fields[8];
  error.operation = fields[9];
  error.reason = text.substr(start);
  return error;
}

}  // namespace cria::comm

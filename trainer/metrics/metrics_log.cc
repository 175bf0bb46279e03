#include "trainer/metrics/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace cria::trainer {
namespace {

std::string Number(double value) { return std::isfinite(value) ? StrCat(value) : "null"; }

// The step of a line; nothing when it is no line of ours.
std::optional<int64_t> StepOf(std::string_view line, const std::string& path) {
  const StatusOr<Json> json = ParseJson(line, path);
  if (!json.ok()) return std::nullopt;
  const StatusOr<int64_t> step = JsonGet<int64_t>(*json, "step", path);
  if (!step.ok()) return std::nullopt;
  return *step;
}

// The length of the part of `text` that holds the steps up to last_step. Only what comes last may
// be torn: a line that cannot be read before one that can is damage.
StatusOr<uint64_t> KeptBytes(std::string_view text, int64_t last_step, const std::string& path) {
  uint64_t kept = 0;
  int64_t previous = -1;
  int64_t line_number = 0;
  int64_t bad_line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // torn
    ++line_number;
    const std::optional<int64_t> step = StepOf(text.substr(begin, end - begin), path);
    begin = end + 1;
    if (!step.has_value() || *step <= previous) {
      if (bad_line == 0) bad_line = line_number;
      continue;
    }
    if (*step > last_step) break;
    if (bad_line != 0) {
      return DataLossError(path, ":", bad_line, ": not a line of metrics in order, but line ",
                           line_number, " (step ", *step, ") is; move the file away to go on");
    }
    previous = *step;
    kept = begin;
  }
  return kept;
}

}  // namespace

std::string FormatMetricsLine(const StepMetrics& metrics) {
  std::string line =
      StrCat("{\"step\":", metrics.step, ",\"tokens\":", metrics.tokens,
             ",\"loss\":", Number(metrics.loss), ",\"lr\":", Number(metrics.lr),
             ",\"grad_norm\":", Number(metrics.grad_norm),
             ",\"tokens_per_s\":", Number(metrics.tokens_per_s), ",\"mfu\":", Number(metrics.mfu));
  if (metrics.comm_share.has_value()) {
    line += StrCat(",\"comm_share\":", Number(*metrics.comm_share),
                   ",\"comm_overlap\":", Number(metrics.comm_overlap.value_or(1)));
  }
  if (metrics.val_loss.has_value()) line += StrCat(",\"val_loss\":", Number(*metrics.val_loss));
  return line + "}";
}

StatusOr<std::unique_ptr<MetricsLog>> MetricsLog::Open(const std::string& path, int64_t last_step) {
  uint64_t kept = 0;
  if (Exists(path)) {
    CRIA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    CRIA_ASSIGN_OR_RETURN(kept, KeptBytes(file.bytes(), last_step, path));
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return ErrnoError(errno, StrCat("open ", path));
  auto log = std::unique_ptr<MetricsLog>(new MetricsLog(path, fd, kept));
  if (::ftruncate(fd, static_cast<off_t>(kept)) != 0) {
    return ErrnoError(errno, StrCat("cut ", path, " to ", kept, " bytes"));
  }
  CRIA_RETURN_IF_ERROR(log->Sync());
  return log;
}

MetricsLog::MetricsLog(std::string path, int fd, uint64_t size)
    : path_(std::move(path)), fd_(fd), size_(size) {}

MetricsLog::~MetricsLog() { ::close(fd_); }

Status MetricsLog::Append(const StepMetrics& metrics) {
  const std::string line = FormatMetricsLine(metrics) + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Status error = ErrnoError(errno, StrCat("write step ", metrics.step, " to ", path_));
      // Half a line would make the next one unreadable. If this fails too, Open cuts it off.
      [[maybe_unused]] const int result = ::ftruncate(fd_, static_cast<off_t>(size_));
      return error;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  size_ += line.size();
  return OkStatus();
}

Status MetricsLog::Sync() {
  // EINVAL: a pipe or a terminal, which nothing can make durable.
  if (::fsync(fd_) != 0 && errno != EINVAL) return ErrnoError(errno, StrCat("sync ", path_));
  return OkStatus();
}

}  // namespace cria::trainer

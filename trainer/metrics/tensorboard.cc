#include "trainer/metrics/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "base/file.h"
#include "trainer/metrics/crc32c.h"

namespace cria::trainer {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr int kNameAttempts = 100;

// Field numbers and wire types of the messages that we write, as (number << 3 | type).
// Event: double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//        SessionLog session_log = 7.
// Summary: repeated Value value = 1.  Value: string tag = 1; float simple_value = 2.
// SessionLog: SessionStatus status = 1, where START = 1.
enum WireTag : uint8_t {
  kEventWallTime = 1 << 3 | 1,
  kEventStep = 2 << 3 | 0,
  kEventFileVersion = 3 << 3 | 2,
  kEventSummary = 5 << 3 | 2,
  kEventSessionLog = 7 << 3 | 2,
  kSummaryValue = 1 << 3 | 2,
  kValueTag = 1 << 3 | 2,
  kValueSimpleValue = 2 << 3 | 5,
  kSessionLogStatus = 1 << 3 | 0,
};
constexpr uint64_t kSessionStart = 1;

template <typename T>
void AppendFixed(std::string* out, T bits) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(bits >> (8 * i) & 0xff));
}

void AppendVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendTag(std::string* out, WireTag tag) { out->push_back(static_cast<char>(tag)); }

void AppendBytes(std::string* out, WireTag tag, std::string_view bytes) {
  AppendTag(out, tag);
  AppendVarint(out, bytes.size());
  out->append(bytes);
}

// The fields that every Event has.
std::string EventAt(double wall_time, int64_t step) {
  std::string event;
  AppendTag(&event, kEventWallTime);
  AppendFixed(&event, std::bit_cast<uint64_t>(wall_time));
  AppendTag(&event, kEventStep);
  AppendVarint(&event, static_cast<uint64_t>(step));
  return event;
}

std::string HostName() {
  char name[256] = "";
  if (::gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace

StatusOr<std::unique_ptr<TensorBoardWriter>> TensorBoardWriter::Create(const std::string& folder,
                                                                       int64_t last_step,
                                                                       Clock* clock) {
  CRIA_RETURN_IF_ERROR(MakeDirs(folder));
  const double now = clock->UnixSeconds();
  const std::string stem =
      JoinPath(folder, StrCat("events.out.tfevents.", static_cast<int64_t>(now), ".", HostName(),
                              ".", ::getpid(), "."));
  std::string path;
  int fd = -1;
  for (int i = 0; fd < 0; ++i) {
    path = StrCat(stem, i);
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && (errno != EEXIST || i >= kNameAttempts)) {
      return ErrnoError(errno, StrCat("create ", path));
    }
  }
  auto writer = std::unique_ptr<TensorBoardWriter>(new TensorBoardWriter(path, fd, clock));
  std::string version = EventAt(now, 0);
  AppendBytes(&version, kEventFileVersion, "brain.Event:2");
  CRIA_RETURN_IF_ERROR(writer->AppendRecord(version));
  if (last_step > 0) {
    std::string session;
    AppendTag(&session, kSessionLogStatus);
    AppendVarint(&session, kSessionStart);
    std::string start = EventAt(now, last_step + 1);
    AppendBytes(&start, kEventSessionLog, session);
    CRIA_RETURN_IF_ERROR(writer->AppendRecord(start));
  }
  CRIA_RETURN_IF_ERROR(writer->Flush());
  return writer;
}

TensorBoardWriter::TensorBoardWriter(std::string path, int fd, Clock* clock)
    : path_(std::move(path)), fd_(fd), clock_(clock) {}

TensorBoardWriter::~TensorBoardWriter() {
  (void)Flush();
  ::close(fd_);
}

Status TensorBoardWriter::Scalars(int64_t step,
                                  const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    AppendBytes(&value, kValueTag, tag);
    AppendTag(&value, kValueSimpleValue);
    AppendFixed(&value, std::bit_cast<uint32_t>(static_cast<float>(number)));
    AppendBytes(&summary, kSummaryValue, value);
  }
  std::string event = EventAt(clock_->UnixSeconds(), step);
  AppendBytes(&event, kEventSummary, summary);
  return AppendRecord(event);
}

Status TensorBoardWriter::AppendRecord(std::string_view event) {
  CRIA_RETURN_IF_ERROR(error_);
  std::string length;
  AppendFixed(&length, static_cast<uint64_t>(event.size()));
  buffer_ += length;
  AppendFixed(&buffer_, MaskedCrc32c(length));
  buffer_ += event;
  AppendFixed(&buffer_, MaskedCrc32c(event));
  return buffer_.size() >= kBufferBytes ? Flush() : OkStatus();
}

Status TensorBoardWriter::Flush() {
  CRIA_RETURN_IF_ERROR(error_);
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      error_ = ErrnoError(errno, StrCat("write ", path_));
      return error_;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
  return OkStatus();
}

}  // namespace cria::trainer

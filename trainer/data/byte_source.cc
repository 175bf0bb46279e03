#include "trainer/data/byte_source.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace cria::trainer {
namespace {

constexpr size_t kBufferBytes = size_t{128} << 10;
constexpr int kPollMs = 100;
constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD";

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

StatusOr<size_t> ReadSome(int fd, std::span<char> out, const std::string& path) {
  for (;;) {
    const ssize_t count = read(fd, out.data(), out.size());
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) return ErrnoError(errno, StrCat("read ", path));
  }
}

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, StrCat("write ", path));
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return OkStatus();
}

// The bytes as they are. The first ones were read already, to look at the magic number.
class PlainSource : public ByteSource {
 public:
  PlainSource(std::string path, Descriptor file, std::string head)
      : path_(std::move(path)), file_(std::move(file)), head_(std::move(head)) {}

  StatusOr<size_t> Read(std::span<char> out) override {
    size_t count = std::min(out.size(), head_.size());
    if (count > 0) {
      std::memcpy(out.data(), head_.data(), count);
      head_.erase(0, count);
    } else {
      CRIA_ASSIGN_OR_RETURN(count, ReadSome(file_.get(), out, path_));
    }
    input_bytes_ += count;
    return count;
  }

  uint64_t input_bytes() const override { return input_bytes_; }

 private:
  const std::string path_;
  const Descriptor file_;
  std::string head_;
  uint64_t input_bytes_ = 0;
};

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(std::unique_ptr<PlainSource> plain, std::string path)
      : path_(std::move(path)),
        plain_(std::move(plain)),
        stream_(ZSTD_createDStream()),
        input_(kBufferBytes) {}

  StatusOr<size_t> Read(std::span<char> out) override {
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    while (to.pos == 0 && !out.empty()) {
      if (from_.pos == from_.size && !at_end_) {
        CRIA_ASSIGN_OR_RETURN(const size_t count, plain_->Read(input_));
        from_ = {input_.data(), count, 0};
        at_end_ = count == 0;
      }
      if (at_end_ && !in_frame_) return size_t{0};
      const size_t hint = ZSTD_decompressStream(stream_.get(), &to, &from_);
      if (ZSTD_isError(hint)) {
        return DataLossError("decompress ", path_, ": ", ZSTD_getErrorName(hint), " near byte ",
                             plain_->input_bytes() - from_.size + from_.pos);
      }
      // 0: a frame is complete and everything of it was handed out.
      in_frame_ = hint != 0;
      if (at_end_ && in_frame_ && to.pos == 0) {
        return DataLossError("decompress ", path_, ": the file ends inside a zstd frame, at byte ",
                             plain_->input_bytes());
      }
    }
    return to.pos;
  }

  uint64_t input_bytes() const override { return plain_->input_bytes(); }

 private:
  struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  const std::string path_;
  const std::unique_ptr<PlainSource> plain_;
  const std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
  std::vector<char> input_;
  ZSTD_inBuffer from_ = {nullptr, 0, 0};
  bool at_end_ = false;
  bool in_frame_ = true;  // an empty file is no zstd file
};

}  // namespace

StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return ErrnoError(errno, StrCat("open ", path));
  std::string head;
  while (head.size() < kZstdMagic.size()) {
    char bytes[4];
    const std::span<char> room(bytes, kZstdMagic.size() - head.size());
    CRIA_ASSIGN_OR_RETURN(const size_t count, ReadSome(file.get(), room, path));
    if (count == 0) break;
    head.append(bytes, count);
  }
  const bool is_zstd = head == kZstdMagic || path.ends_with(".zst");
  auto plain = std::make_unique<PlainSource>(path, std::move(file), std::move(head));
  if (!is_zstd) return plain;
  return std::make_unique<ZstdSource>(std::move(plain), path);
}

Status SpoolToFile(int from, const std::string& path, const std::atomic<bool>* stop) {
  const Descriptor to(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (to.get() < 0) return ErrnoError(errno, StrCat("create ", path));
  std::vector<char> buffer(kBufferBytes);
  for (;;) {
    if (stop != nullptr && stop->load()) return CancelledError("read standard input: stopped");
    // A poll in short turns, so that a stop is seen while the other side is silent.
    pollfd ready = {.fd = from, .events = POLLIN, .revents = 0};
    const int num_ready = poll(&ready, 1, kPollMs);
    if (num_ready == 0 || (num_ready < 0 && errno == EINTR)) continue;
    if (num_ready < 0) return ErrnoError(errno, "wait for standard input");
    CRIA_ASSIGN_OR_RETURN(const size_t count, ReadSome(from, buffer, "standard input"));
    if (count == 0) return OkStatus();
    CRIA_RETURN_IF_ERROR(WriteAll(to.get(), {buffer.data(), count}, path));
  }
}

}  // namespace cria::trainer

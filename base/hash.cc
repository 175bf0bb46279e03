#include "base/hash.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <vector>

#include "base/check.h"

namespace cria {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

std::string HexOf(XXH128_hash_t hash) {
  return StrFormat("%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                   static_cast<unsigned long long>(hash.low64));
}

}  // namespace

uint64_t Hash64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string HashHex(std::string_view bytes) {
  return HexOf(XXH3_128bits(bytes.data(), bytes.size()));
}

StatusOr<std::string> HashFileHex(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, StrCat("open ", path));
  Hasher hasher;
  std::vector<char> buffer(kReadBytes);
  ssize_t got = 0;
  int error_number = 0;
  do {
    got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0) error_number = errno;
    if (got > 0) hasher.Update({buffer.data(), static_cast<size_t>(got)});
  } while (got > 0 || (got < 0 && error_number == EINTR));
  ::close(fd);
  if (got < 0) return ErrnoError(error_number, StrCat("read ", path));
  return hasher.Hex();
}

void Hasher::Deleter::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Hasher::Hasher() : state_(XXH3_createState()) {
  CRIA_CHECK(state_ != nullptr, "out of memory");
  XXH3_128bits_reset(state_.get());
}

void Hasher::Update(std::string_view bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Hasher::Hex() const { return HexOf(XXH3_128bits_digest(state_.get())); }

}  // namespace cria

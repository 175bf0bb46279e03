// Fast checksums against damage (not against an attacker): xxHash's XXH3.
//
//   manifest["hash"] = HashHex(bytes);
//   Hasher hasher;  while (...) hasher.Update(chunk);  hasher.Hex() == HashHex(whole)
//
// Every manifest and every keyed stream of random numbers uses these; the values are the same on
// any machine, and `xxhsum -H128 FILE` prints the same digits as HashFileHex.
// Functions are thread-safe, Hasher is thread-compatible. Cost: about the speed of memory.
// Source: https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md.

#ifndef CRIA_BASE_HASH_H_
#define CRIA_BASE_HASH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct XXH3_state_s;

namespace cria {

// XXH3, 64 bits.
uint64_t Hash64(std::string_view bytes, uint64_t seed = 0);

// XXH3, 128 bits, as 32 lower-case hexadecimal digits.
std::string HashHex(std::string_view bytes);

// HashHex of a file's content, read in pieces.
StatusOr<std::string> HashFileHex(const std::string& path);

// HashHex of bytes that come in pieces.
class Hasher {
 public:
  Hasher();
  void Update(std::string_view bytes);
  // Of all bytes so far; more may follow.
  std::string Hex() const;

 private:
  struct Deleter {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Deleter> state_;
};

}  // namespace cria

#endif  // CRIA_BASE_HASH_H_

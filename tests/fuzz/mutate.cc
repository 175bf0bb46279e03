#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "base/rng.h"

namespace cria::fuzz {
namespace {

// Draws in a row from one stream.
class Draws {
 public:
  explicit Draws(uint64_t key) : rng_(key, StreamOf("fuzz/mutate")) {}
  size_t Below(size_t n) {
    return static_cast<size_t>(rng_.Below(next_++, std::max<size_t>(n, 1)));
  }

 private:
  const Rng rng_;
  uint64_t next_ = 0;
};

constexpr std::array<uint64_t, 12> kExtremes = {
    0,           1,           0x7f,        0xff,        0x7fff,           0xffff,
    0x7fffffffu, 0x80000000u, 0xffffffffu, 0x100000000, (1ull << 63) - 1, ~0ull};

constexpr std::array<std::string_view, 16> kNumbers = {"0",
                                                       "-1",
                                                       "1",
                                                       "1e999",
                                                       "-0",
                                                       "9223372036854775807",
                                                       "18446744073709551616",
                                                       "4294967296",
                                                       "1.5",
                                                       "null",
                                                       "[]",
                                                       "{}",
                                                       "\"x\"",
                                                       "true",
                                                       "0.0000001",
                                                       "99999999"};

// Little-endian, 1, 2, 4 or 8 bytes wide.
void PutExtreme(std::string* bytes, Draws* draws) {
  const size_t width = size_t{1} << draws->Below(4);
  if (bytes->size() < width) return;
  const size_t range = std::min<size_t>(bytes->size() - width + 1, draws->Below(2) ? 256 : ~0ull);
  const size_t at = draws->Below(range);
  const uint64_t value = kExtremes[draws->Below(kExtremes.size())] - draws->Below(2);
  for (size_t i = 0; i < width; ++i) (*bytes)[at + i] = static_cast<char>(value >> (8 * i));
}

// Replaces a run of digits.
void PutNumber(std::string* bytes, Draws* draws) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const size_t from = draws->Below(bytes->size());
  const auto begin =
      std::find_if(bytes->begin() + static_cast<int64_t>(from), bytes->end(), is_digit);
  const auto end = std::find_if_not(begin, bytes->end(), is_digit);
  bytes->replace(begin, end, kNumbers[draws->Below(kNumbers.size())]);
}

void MoveChunk(std::string* bytes, Draws* draws) {
  const size_t size = bytes->size();
  const size_t length = 1 + draws->Below(std::min<size_t>(size, 1 + draws->Below(64)));
  if (size < length) return;
  const size_t from = draws->Below(size - length + 1);
  const std::string chunk = bytes->substr(from, length);
  switch (draws->Below(3)) {
    case 0:  // removed
      bytes->erase(from, length);
      break;
    case 1:  // again, elsewhere
      bytes->insert(draws->Below(size), chunk);
      break;
    default: {  // swapped with its like
      const size_t to = draws->Below(size - length + 1);
      bytes->replace(from, length, bytes->substr(to, length));
      bytes->replace(to, length, chunk);
    }
  }
}

void PutNesting(std::string* bytes, Draws* draws) {
  constexpr std::array<std::string_view, 4> kOpen = {"[", "{\"a\":", "(", "- "};
  const std::string_view open = kOpen[draws->Below(kOpen.size())];
  std::string deep;
  for (size_t i = size_t{1} << (4 + draws->Below(9)); i > 0; --i) deep += open;
  bytes->insert(draws->Below(bytes->size() + 1), deep);
}

void Damage(std::string* bytes, Draws* draws) {
  if (bytes->empty()) return;
  const size_t at = draws->Below(bytes->size());
  switch (draws->Below(8)) {
    case 0:
      (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << draws->Below(8)));
      break;
    case 1:
      (*bytes)[at] = static_cast<char>(draws->Below(256));
      break;
    case 2:
    case 3:
      PutExtreme(bytes, draws);
      break;
    case 4:
    case 5:
      PutNumber(bytes, draws);
      break;
    case 6:
      MoveChunk(bytes, draws);
      break;
    default:
      draws->Below(8) == 0 ? PutNesting(bytes, draws) : PutExtreme(bytes, draws);
  }
}

}  // namespace

void ForEachMutation(std::string_view seed, int64_t count, uint64_t key,
                     const std::function<void(const std::string&)>& use) {
  Draws draws(key);
  // Every length where that fits, else evenly spread.
  const auto num_cuts = std::min<size_t>(seed.size(), static_cast<size_t>(count / 4));
  for (size_t i = 0; i < num_cuts; ++i) {
    use(std::string(seed.substr(0, num_cuts == seed.size() ? i : i * seed.size() / num_cuts)));
  }
  // Every byte of the start, its lowest and its highest bit.
  const auto num_flips = std::min<size_t>(seed.size(), static_cast<size_t>(count / 8));
  for (size_t i = 0; i < num_flips; ++i) {
    for (const int bit : {0, 7}) {
      std::string bytes(seed);
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      use(bytes);
    }
  }
  for (auto done = static_cast<int64_t>(num_cuts + 2 * num_flips); done < count; ++done) {
    std::string bytes(seed);
    for (size_t changes = 1 + draws.Below(3); changes > 0; --changes) Damage(&bytes, &draws);
    use(bytes);
  }
}

}  // namespace cria::fuzz

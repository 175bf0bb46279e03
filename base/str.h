// Text from parts: StrCat("read ", path, ": got ", n, " of ", total, " bytes").
//
// A small replacement for absl::StrCat that takes std::string_view (Debian's absl has its own
// string_view type) and prints floating-point values with the fewest digits that read back equal.
// Thread-safe. Allocates the result only.

#ifndef CRIA_BASE_STR_H_
#define CRIA_BASE_STR_H_

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace cria {

namespace str_internal {
inline void Append(std::string* out, std::string_view part) { out->append(part); }
inline void Append(std::string* out, char part) { out->push_back(part); }
template <std::same_as<bool> T>
void Append(std::string* out, T part) {
  out->append(part ? "true" : "false");
}
template <typename T>
requires((std::integral<T> || std::floating_point<T>)&&!std::same_as<T, char> &&
         !std::same_as<T, bool>) void Append(std::string* out, T part) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), part);
  out->append(buffer, result.ptr);
}
}  // namespace str_internal

// The parts, one after another. Parts: strings, characters, bools (true/false), numbers.
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::string out;
  (str_internal::Append(&out, parts), ...);
  return out;
}

// printf into a string, for widths and precisions: StrFormat("%6.2f", x).
[[gnu::format(printf, 1, 2)]] std::string StrFormat(const char* format, ...);

// "1.5 GiB", "340 KiB", "12 B": a byte count for people.
std::string HumanBytes(double bytes);

// "8.03 B", "1.2 M", "950": a count for people (powers of 1000).
std::string HumanCount(double count);

// "2h 03m", "4m 05s", "12s", "0.3s": a duration for people.
std::string HumanSeconds(double seconds);

}  // namespace cria

#endif  // CRIA_BASE_STR_H_

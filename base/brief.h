// What a message quotes of a file: enough to recognise it, whatever its length.
//
//   return DataLossError(path, ": unknown key \"", Brief(key), "\"");
//
// Thread-safe.

#ifndef CRIA_BASE_BRIEF_H_
#define CRIA_BASE_BRIEF_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cria {

// `text` itself, or, where it is longer, its first `bytes_max` bytes (whole characters of UTF-8)
// and how many there are: "aaaa... (1000000 bytes)".
std::string Brief(std::string_view text, size_t bytes_max = 100);

}  // namespace cria

#endif  // CRIA_BASE_BRIEF_H_

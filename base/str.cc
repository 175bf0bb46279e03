#include "base/str.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace cria {

std::string StrFormat(const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string out(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(out.data(), out.size() + 1, format, again);
  va_end(again);
  return out;
}

std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  return StrFormat(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
}

std::string HumanCount(double count) {
  static constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  int unit = 0;
  while (std::abs(count) >= 1000 && unit < 4) {
    count /= 1000;
    ++unit;
  }
  return StrFormat(unit == 0 ? "%.0f%s" : "%.2f%s", count, kUnits[unit]);
}

std::string HumanSeconds(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto whole = static_cast<long>(seconds);
  if (whole >= 3600) return StrFormat("%ldh %02ldm", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return StrFormat("%ldm %02lds", whole / 60, whole % 60);
  return StrFormat(whole >= 10 ? "%.0fs" : "%.1fs", seconds);
}

}  // namespace cria

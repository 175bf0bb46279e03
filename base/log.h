// Lines for people on stderr: a time, a level, the parts as StrCat joins them.
//
//   LogInfo("wrote ", path, " in ", HumanSeconds(seconds));
//   LogWarning("skipped step ", step, ": the gradient of ", name, " is not finite");
//
// CRIA_LOG=debug|info|warning|error in the environment is the lowest level that is written (info).
// On a terminal a line first clears a progress bar (base/progress.h) that stands there.
// Thread-safe: lines never mix. Cost of a line below the level: one load.

#ifndef CRIA_BASE_LOG_H_
#define CRIA_BASE_LOG_H_

#include <string>

#include "base/str.h"

namespace cria {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

namespace log_internal {
bool IsOn(LogLevel level);
void Write(LogLevel level, const std::string& line);
}  // namespace log_internal

template <typename... Parts>
void LogDebug(const Parts&... parts) {
  if (!log_internal::IsOn(LogLevel::kDebug)) return;
  log_internal::Write(LogLevel::kDebug, StrCat(parts...));
}

template <typename... Parts>
void LogInfo(const Parts&... parts) {
  if (!log_internal::IsOn(LogLevel::kInfo)) return;
  log_internal::Write(LogLevel::kInfo, StrCat(parts...));
}

template <typename... Parts>
void LogWarning(const Parts&... parts) {
  if (!log_internal::IsOn(LogLevel::kWarning)) return;
  log_internal::Write(LogLevel::kWarning, StrCat(parts...));
}

template <typename... Parts>
void LogError(const Parts&... parts) {
  log_internal::Write(LogLevel::kError, StrCat(parts...));
}

}  // namespace cria

#endif  // CRIA_BASE_LOG_H_

#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace cria {
namespace {

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

LogLevel LevelFromEnvironment() {
  const char* wish = std::getenv("CRIA_LOG");
  const std::string_view name = wish == nullptr ? "info" : wish;
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

std::shared_ptr<spdlog::logger> MakeLogger() {
  auto logger = std::make_shared<spdlog::logger>(
      "cria", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(SpdlogLevel(LevelFromEnvironment()));
  // "\r" and "erase to the end of the line" remove a progress bar before the line is written.
  const bool is_terminal = ::isatty(STDERR_FILENO) != 0;
  logger->set_pattern(is_terminal ? "\r\x1b[K%H:%M:%S %^%l%$ %v" : "%H:%M:%S %l %v");
  logger->flush_on(spdlog::level::debug);
  return logger;
}

// Never destroyed: a thread may log while the process ends.
spdlog::logger& Logger() {
  static auto* logger = new std::shared_ptr<spdlog::logger>(MakeLogger());
  return **logger;
}

}  // namespace

namespace log_internal {

bool IsOn(LogLevel level) {
  static const LogLevel lowest = LevelFromEnvironment();
  return level >= lowest;
}

void Write(LogLevel level, const std::string& line) {
  Logger().log(SpdlogLevel(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace log_internal
}  // namespace cria

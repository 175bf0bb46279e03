#include "trainer/launch/launch_self.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "trainer/launch/launcher.h"

namespace cria::trainer {
namespace {

StatusOr<std::string> SelfPath() {
  std::array<char, 4096> path = {};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return ErrnoError(errno, "read /proc/self/exe");
  return std::string(path.data(), static_cast<size_t>(length));
}

}  // namespace

Status LaunchSelf(const std::vector<std::string>& arguments, int ranks) {
  LaunchOptions options;
  CRIA_ASSIGN_OR_RETURN(const std::string self, SelfPath());
  options.command = {self};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.ranks = ranks;
  setenv("CRIA_LOG", "error", /*overwrite=*/0);
  CRIA_ASSIGN_OR_RETURN(const LaunchResult result, Launch(options));
  if (result.exit_code == 0) return OkStatus();
  return result.exit_code == 2 ? InvalidArgumentError(result.message)
                               : InternalError(result.message);
}

}  // namespace cria::trainer

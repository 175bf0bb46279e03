#include "tests/integration/trainer/launch_command.h"

#include <signal.h>

#include <cstdlib>

#include "base/file.h"
#include "base/str.h"

namespace cria {

char ProcessState(pid_t pid) {
  const StatusOr<std::string> stat = ReadFile(StrCat("/proc/", pid, "/stat"));
  return stat.ok() ? (*stat)[stat->rfind(')') + 2] : 'Z';
}

LaunchedScript::LaunchedScript(const std::vector<std::string>& flags, const std::string& script)
    : dir_(FreshDir("launched")) {
  std::vector<std::string> args = {kLaunchProgram};
  args.insert(args.end(), flags.begin(), flags.end());
  // A name appears with its content.
  const std::string ready =
      "ready() { echo $$ > $DIR/.pid.$RANK && mv $DIR/.pid.$RANK $DIR/pid.$RANK; }\n";
  args.insert(args.end(), {"--", "/bin/sh", "-c", ready + script});
  launcher_ =
      std::make_unique<Process>(args, ProcessOptions{.env = {{"DIR", dir_}, {"RANK", "none"}}});
}

LaunchedScript::~LaunchedScript() {
  for (const std::string& name : ListDir(dir_).value_or(std::vector<std::string>())) {
    if (name.starts_with("pid.")) kill(-PidOf(std::atoi(name.c_str() + 4)), SIGKILL);
  }
}

bool LaunchedScript::WaitUntilReady(int ranks) {
  for (int r = 0; r < ranks; ++r) {
    const auto is_ready = [&] { return Exists(JoinPath(dir_, StrCat("pid.", r))); };
    if (!WaitUntil([&] { return is_ready() || launcher_->ended(); }) || !is_ready()) return false;
  }
  return true;
}

pid_t LaunchedScript::PidOf(int rank) const {
  return std::atoi(ReadFile(JoinPath(dir_, StrCat("pid.", rank))).value_or("0").c_str());
}

bool LaunchedScript::AllGone() const {
  for (const std::string& name : ListDir(dir_).value_or(std::vector<std::string>())) {
    if (name.starts_with("pid.") && ProcessState(PidOf(std::atoi(name.c_str() + 4))) != 'Z') {
      return false;
    }
  }
  return true;
}

Ended RunScript(const std::vector<std::string>& flags, const std::string& script) {
  LaunchedScript job(flags, script);
  return job.launcher().Wait();
}

}  // namespace cria

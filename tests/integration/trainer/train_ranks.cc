#include "tests/integration/trainer/train_ranks.h"

#include <cstdlib>

#include "base/file.h"
#include "base/str.h"
#include "tests/integration/train_command.h"
#include "tests/integration/trainer/launch_command.h"
#include "tests/support/tiny_run.h"

namespace cria {
namespace {

// The value of a variable that a process was started with; empty when it is gone, or has none.
std::string VariableOf(pid_t pid, const std::string& name) {
  std::string lines = StrCat("\n", ReadFile(StrCat("/proc/", pid, "/environ")).value_or(""));
  for (char& c : lines) {
    if (c == '\0') c = '\n';
  }
  const size_t at = lines.find(StrCat("\n", name, "="));
  if (at == std::string::npos) return "";
  const size_t start = at + name.size() + 2;
  return lines.substr(start, lines.find('\n', start) - start);
}

pid_t ParentOf(pid_t pid) {
  const std::string stat = ReadFile(StrCat("/proc/", pid, "/stat")).value_or("");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? 0 : std::atoi(stat.c_str() + name_end + 4);
}

}  // namespace

TrainRanks::TrainRanks(const std::string& out_dir, const TrainRanksOptions& options)
    : out_dir_(out_dir) {
  std::vector<std::string> args = {kLaunchProgram, "-n", StrCat(options.ranks), "--"};
  std::vector<std::string> train = TrainArgs(out_dir, {"--resume", "auto"}, options.settings);
  if (!options.program.empty()) train[0] = options.program;
  args.insert(args.end(), train.begin(), train.end());
  launcher_ = std::make_unique<Process>(args, ProcessOptions{.env = options.env});
}

bool TrainRanks::WaitForStep(int64_t step) {
  return WaitUntil([&] { return launcher_->ended() || NumSteps(out_dir_) >= step; }) &&
         !launcher_->ended();
}

pid_t TrainRanks::PidOf(int rank) {
  pid_t found = 0;
  const auto look = [&] {
    for (const std::string& name : ListDir("/proc").value_or(std::vector<std::string>())) {
      const pid_t pid = std::atoi(name.c_str());
      if (pid > 0 && ParentOf(pid) == launcher_->pid() &&
          VariableOf(pid, "LOCAL_WORLD_SIZE") != "" && VariableOf(pid, "RANK") == StrCat(rank)) {
        found = pid;
      }
    }
    return found != 0;
  };
  WaitUntil([&] { return look() || launcher_->ended(); });
  return found;
}

int64_t NumSteps(const std::string& out_dir) {
  return static_cast<int64_t>(ReadLines(JoinPath(out_dir, "metrics.jsonl")).size());
}

}  // namespace cria

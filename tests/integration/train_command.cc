#include "tests/integration/train_command.h"

#include "base/file.h"
#include "base/json.h"
#include "tests/support/tiny_run.h"

namespace cria {

std::vector<std::string> TrainArgs(const std::string& out_dir, const std::vector<std::string>& more,
                                   const std::vector<std::string>& settings) {
  std::vector<std::string> args = {kTrainProgram, "--out", out_dir};
  if (!Exists(JoinPath(out_dir, "config.yaml"))) {
    // The file behind them all is the default job.
    std::vector<std::string> all = TinySettings(TinyData());
    all.insert(all.end(), settings.begin(), settings.end());
    for (const std::string& setting : all) args.insert(args.end(), {"--set", setting});
  }
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::vector<std::string> MetricsWithoutSpeed(const std::string& out_dir) {
  std::vector<std::string> lines;
  for (const std::string& line : ReadLines(JoinPath(out_dir, "metrics.jsonl"))) {
    StatusOr<Json> json = ParseJson(line, "metrics.jsonl");
    if (!json.ok()) {
      lines.push_back("not JSON: " + line);
      continue;
    }
    json->erase("tokens_per_s");
    json->erase("mfu");
    json->erase("comm_share");
    json->erase("comm_overlap");
    lines.push_back(json->dump());
  }
  return lines;
}

std::vector<std::string> ErrorLines(const std::string& err) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < err.size();) {
    size_t end = err.find('\n', begin);
    if (end == std::string::npos) end = err.size();
    const std::string line = err.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("cria train: ")) lines.push_back(line);
  }
  return lines;
}

}  // namespace cria

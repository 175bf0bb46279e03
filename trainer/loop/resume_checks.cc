#include "trainer/loop/resume_checks.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

namespace cria::trainer {
namespace {

// The lines of a resolved configuration's top-level section "model".
std::vector<std::string_view> ModelLines(std::string_view yaml) {
  std::vector<std::string_view> lines;
  bool inside = false;
  while (!yaml.empty()) {
    const size_t end = yaml.find('\n');
    const std::string_view line = yaml.substr(0, end);
    yaml.remove_prefix(end == std::string_view::npos ? yaml.size() : end + 1);
    if (!line.empty() && line[0] != ' ') inside = line.starts_with("model:");
    if (inside) lines.push_back(line);
  }
  return lines;
}

std::string_view Trimmed(std::string_view line) {
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

// The step of "step_N" and "step_N.old"; -1 for other names.
int64_t StepOf(std::string_view name) {
  constexpr std::string_view kPrefix = "step_";
  constexpr std::string_view kDisplaced = ".old";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  if (name.ends_with(kDisplaced)) name.remove_suffix(kDisplaced.size());
  int64_t step = -1;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && rest == name.data() + name.size() ? step : -1;
}

std::string FreePath(const std::string& wanted) {
  std::string path = wanted;
  for (int i = 2; Exists(path); ++i) path = StrCat(wanted, ".", i);
  return path;
}

}  // namespace

int64_t DataFingerprint(const Manifest& manifest, bool shuffle) {
  std::string text = StrCat(manifest.tokenizer_fingerprint, " ", manifest.vocab_size, " ",
                            manifest.bos_id, " ", manifest.eos_id, " ", shuffle);
  for (const ShardInfo& shard : manifest.train.shards) {
    text += StrCat(" ", shard.num_tokens, " ", shard.hash);
  }
  return static_cast<int64_t>(Hash64(text) >> 11);
}

Status CheckSameModel(const std::string& checkpoint_yaml, const std::string& job_yaml,
                      const std::string& where) {
  const std::vector<std::string_view> theirs = ModelLines(checkpoint_yaml);
  const std::vector<std::string_view> ours = ModelLines(job_yaml);
  for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
    const std::string_view their = i < theirs.size() ? Trimmed(theirs[i]) : "nothing";
    const std::string_view our = i < ours.size() ? Trimmed(ours[i]) : "nothing";
    if (their != our) {
      return InvalidArgumentError(where, ": its model has \"", their, "\", the job's \"", our,
                                  "\"");
    }
  }
  return OkStatus();
}

Status SetAsideNewerCheckpoints(const std::string& out_dir, int64_t step) {
  const std::string checkpoints = JoinPath(out_dir, "checkpoints");
  if (!IsDir(checkpoints)) return OkStatus();
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(checkpoints));
  std::vector<std::pair<int64_t, std::string>> newer;
  for (const std::string& name : names) {
    if (StepOf(name) > step) newer.emplace_back(StepOf(name), name);
  }
  if (newer.empty()) return OkStatus();
  std::sort(newer.rbegin(), newer.rend());
  const std::string aside = JoinPath(out_dir, "checkpoints_replaced");
  CRIA_RETURN_IF_ERROR(MakeDirs(aside));
  for (const auto& [newer_step, name] : newer) {
    const std::string path = FreePath(JoinPath(aside, name));
    CRIA_RETURN_IF_ERROR(Rename(JoinPath(checkpoints, name), path));
    LogWarning("going on from step ", step, ": the checkpoint of step ", newer_step,
               " is set aside as ", path);
  }
  return SyncDir(checkpoints);
}

}  // namespace cria::trainer

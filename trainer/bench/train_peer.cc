#include "trainer/bench/train_peer.h"

#include <unistd.h>

#include <cstdlib>

#include "base/file.h"

namespace cria::trainer {
namespace {

// Importing torch from a cold disk; compiling a model on busy cores; a slow step.
constexpr double kStartSeconds = 180;
constexpr double kAnswerSeconds = 600;

// The number after "<key> " in "loss 8.3 grad_norm 1.2".
StatusOr<double> NumberAfter(const std::string& answer, const std::string& key) {
  const std::string padded = " " + answer;
  const size_t at = padded.find(" " + key + " ");
  if (at == std::string::npos) return InternalError("the peer's \"", answer, "\" has no ", key);
  return std::strtod(padded.c_str() + at + key.size() + 2, nullptr);
}

}  // namespace

StatusOr<std::unique_ptr<TrainPeer>> TrainPeer::Start(const std::string& python, BenchStep* step) {
  CRIA_ASSIGN_OR_RETURN(const std::string script, FindPeerScript("train_peer.py"));
  CRIA_ASSIGN_OR_RETURN(auto process, PeerProcess::Start(python, script, kStartSeconds));
  const char* tmp = std::getenv("TMPDIR");
  const std::string path =
      JoinPath(tmp != nullptr ? tmp : "/tmp", StrCat("cria_bench_", getpid(), ".safetensors"));
  Status status = step->WriteFile(path);
  if (status.ok()) status = process->Ask("load " + path, kAnswerSeconds).status();
  // The peer has read it all.
  const Status removed = Exists(path) ? RemoveAll(path) : OkStatus();
  CRIA_RETURN_IF_ERROR(status);
  CRIA_RETURN_IF_ERROR(removed);
  return std::unique_ptr<TrainPeer>(new TrainPeer(std::move(process)));
}

StatusOr<StepResult> TrainPeer::Check(const PeerVariant& variant) {
  CRIA_ASSIGN_OR_RETURN(const std::string answer,
                        process_->Ask("check " + variant.ToString(), kAnswerSeconds));
  StepResult result;
  CRIA_ASSIGN_OR_RETURN(result.loss, NumberAfter(answer, "loss"));
  CRIA_ASSIGN_OR_RETURN(result.grad_norm, NumberAfter(answer, "grad_norm"));
  return result;
}

StatusOr<double> TrainPeer::Run(const PeerVariant& variant) {
  CRIA_ASSIGN_OR_RETURN(const std::string answer,
                        process_->Ask("run " + variant.ToString(), kAnswerSeconds));
  CRIA_ASSIGN_OR_RETURN(const double ms, NumberAfter(answer, "ms"));
  return ms * 1e-3;
}

}  // namespace cria::trainer

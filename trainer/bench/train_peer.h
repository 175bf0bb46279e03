// PyTorch's training step on our weights (tools/peers/train_peer.py), as `cria bench train` uses
// it.
//
//   CRIA_ASSIGN_OR_RETURN(auto peer, TrainPeer::Start("/opt/torch/bin/python", &step));
//   CRIA_ASSIGN_OR_RETURN(const StepResult result, peer->Check({"eager", "fp32", 2}));
//   CRIA_ASSIGN_OR_RETURN(const double seconds, peer->Run({"compile", "fp32", 2}));
//
// Single-threaded. Errors are those of PeerProcess.

#ifndef CRIA_TRAINER_BENCH_TRAIN_PEER_H_
#define CRIA_TRAINER_BENCH_TRAIN_PEER_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "trainer/bench/bench_step.h"
#include "trainer/bench/peer_process.h"

namespace cria::trainer {

struct PeerVariant {
  std::string mode;       // "eager" or "compile"
  std::string precision;  // "fp32" or "bf16"
  int threads = 1;

  std::string ToString() const { return StrCat(mode, " ", precision, " ", threads); }
};

class TrainPeer {
 public:
  // Starts the interpreter and gives it the step's weights and tokens.
  static StatusOr<std::unique_ptr<TrainPeer>> Start(const std::string& python, BenchStep* step);

  // "torch 2.1.0".
  const std::string& version() const { return process_->greeting(); }

  // Loss and gradient norm on the weights as they were at Start.
  StatusOr<StepResult> Check(const PeerVariant& variant);
  // Seconds of one step of the variant's own model. The first one of a variant is slow.
  StatusOr<double> Run(const PeerVariant& variant);

 private:
  explicit TrainPeer(std::unique_ptr<PeerProcess> process) : process_(std::move(process)) {}

  std::unique_ptr<PeerProcess> process_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_TRAIN_PEER_H_

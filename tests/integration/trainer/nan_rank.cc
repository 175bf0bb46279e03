// `cria train` on a broken machine: on the rank NAN_RANK every product from number NAN_PRODUCT on
// has an element that is no number. Takes --out and --set of the real one.

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/cpu/cpu_ops.h"
#include "model/forwarding_ops.h"
#include "trainer/config/train_config.h"
#include "trainer/data/token_dataset.h"
#include "trainer/loop/job_ranks.h"
#include "trainer/loop/train_loop.h"

namespace cria {
namespace {

class BrokenOps : public model::ForwardingOps {
 public:
  BrokenOps(model::Ops* ops, bool broken, int64_t first)
      : ForwardingOps(ops), broken_(broken), left_(first) {}
  void Matmul(const model::MatmulArgs& args) override {
    ForwardingOps::Matmul(args);
    if (broken_ && left_-- <= 0 && args.c.dtype() == model::DType::kF32) {
      args.c.f32()[0] = std::numeric_limits<float>::quiet_NaN();
    }
  }

 private:
  const bool broken_;
  int64_t left_;
};

int64_t Variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? -1 : std::atoll(text);
}

Status RunBroken(const std::string& out_dir, const trainer::TrainConfig& config,
                 trainer::JobRanks* ranks) {
  CRIA_RETURN_IF_ERROR(ranks->MakeGroups(config));
  CRIA_ASSIGN_OR_RETURN(const auto train, trainer::TokenDataset::Open(config.data.path, "train"));
  CRIA_ASSIGN_OR_RETURN(const auto val, trainer::TokenDataset::Open(config.data.path, "val"));
  const std::unique_ptr<model::Ops> cpu = model::cpu::NewCpuOps();
  BrokenOps ops(cpu.get(), ranks->rank() == Variable("NAN_RANK"), Variable("NAN_PRODUCT"));
  trainer::TrainLoop loop(
      config, {.out_dir = out_dir, .ops = &ops, .clock = RealClock(), .groups = ranks->groups()});
  CRIA_RETURN_IF_ERROR(loop.Open(&train, &val));
  return loop.Run().status();
}

Status Main(const std::vector<std::string>& args) {
  std::string out_dir;
  std::vector<std::string> settings;
  for (size_t i = 1; i + 1 < args.size(); ++i) {
    if (args[i] == "--out") out_dir = args[i + 1];
    if (args[i] == "--set") settings.push_back(args[i + 1]);
  }
  CRIA_ASSIGN_OR_RETURN(const trainer::TrainConfig config,
                        trainer::LoadTrainConfig("default", settings));
  CRIA_ASSIGN_OR_RETURN(trainer::JobRanks ranks, trainer::JobRanks::Join());
  const Status status = RunBroken(out_dir, config, &ranks);
  if (!status.ok()) ranks.Abort(status);
  return status;
}

}  // namespace
}  // namespace cria

int main(int argc, char** argv) {
  const cria::Status status = cria::Main({argv, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "nan_rank: %s\n", cria::Message(status).c_str());
  return cria::ExitCode(status);
}

#include "trainer/bench/layouts_bench.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "comm/api/communicator.h"
#include "comm/engine/world.h"
#include "debug/stream_times.h"
#include "model/cpu/cpu_ops.h"
#include "model/parallel/groups.h"
#include "trainer/bench/samples.h"
#include "trainer/bench/scratch_folder.h"
#include "trainer/check/layout_list.h"
#include "trainer/check/layouts_rank.h"
#include "trainer/config/train_config.h"
#include "trainer/data/token_dataset.h"
#include "trainer/launch/launch_self.h"
#include "trainer/loop/memory.h"
#include "trainer/loop/prepare_job.h"
#include "trainer/loop/step_watcher.h"
#include "trainer/loop/train_loop.h"

namespace cria::trainer {
namespace {

using model::Layout;

constexpr int kRanks = 2;
// Of a run, not counted: threads wake up, memory is touched, plans are made.
constexpr int64_t kWarmUpSteps = 2;

// What rank 0 knows of one run.
struct Measurement {
  std::vector<double> losses;
  double tokens_per_s = 0;
  double comm_share = 0, comm_overlap = 1;
  int64_t planned_bytes = 0, used_bytes = 0;
};

struct Variant {
  std::string name;
  Layout layout;  // of one rank: one process with kRanks threads
  Samples tokens_per_s, comm_share, comm_overlap;
  int64_t planned_bytes = 0, used_bytes = 0;

  bool one_process() const { return layout.world_size() == 1; }
};

std::vector<Variant> AllVariants() {
  std::vector<Variant> variants(1);
  variants[0].name = StrCat("one process, ", kRanks, " threads");
  const auto layouts = ParseLayouts("dp2;dp2,optimizer;dp2,gradients;dp2,weights;tp2;cp2;pp2");
  for (const Layout& layout : *layouts) {
    variants.emplace_back();
    variants.back().name = FormatLayout(layout);
    variants.back().layout = layout;
  }
  return variants;
}

// Reads the memory in use at the last step.
class MemoryWatcher final : public StepWatcher {
 public:
  void OnBatches(int64_t step, const RankBatches& batches) override {
    (void)step;
    (void)batches;
  }
  void OnUpdated(int64_t step, const model::ParameterBuffers& parameters) override {
    (void)step;
    (void)parameters;
    used_bytes_ = UsedMemoryBytes();
  }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  int64_t used_bytes_ = 0;
};

double Median(const std::vector<double>& values) {
  Samples samples;
  for (const double value : values) samples.Add(value);
  return samples.Median();
}

// The steps after the warm-up.
Status ReadMetrics(const std::string& path, Measurement* m) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<double> speeds, shares, overlaps;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    CRIA_ASSIGN_OR_RETURN(const Json line, ParseJson(text.substr(begin, end - begin), path));
    begin = end + 1;
    CRIA_ASSIGN_OR_RETURN(const double loss, JsonGet<double>(line, "loss", path));
    m->losses.push_back(loss);
    if (static_cast<int64_t>(m->losses.size()) <= kWarmUpSteps) continue;
    CRIA_ASSIGN_OR_RETURN(const double speed, JsonGet<double>(line, "tokens_per_s", path));
    CRIA_ASSIGN_OR_RETURN(const double share, JsonGetOr(line, "comm_share", 0.0, path));
    CRIA_ASSIGN_OR_RETURN(const double overlap, JsonGetOr(line, "comm_overlap", 1.0, path));
    speeds.push_back(speed);
    shares.push_back(share);
    overlaps.push_back(overlap);
  }
  m->tokens_per_s = Median(speeds);
  m->comm_share = Median(shares);
  m->comm_overlap = Median(overlaps);
  return OkStatus();
}

class BenchRank {
 public:
  BenchRank(const TrainConfig& config, std::string folder, comm::Communicator* world,
            debug::StreamTimes* times)
      : config_(config), folder_(std::move(folder)), world_(world), times_(times) {}

  Status Open() {
    CRIA_ASSIGN_OR_RETURN(TokenDataset train, TokenDataset::Open(config_.data.path, "train"));
    CRIA_ASSIGN_OR_RETURN(TokenDataset val, TokenDataset::Open(config_.data.path, "val"));
    train_ = std::make_unique<TokenDataset>(std::move(train));
    val_ = std::make_unique<TokenDataset>(std::move(val));
    return OkStatus();
  }

  StatusOr<Measurement> Run(const Variant& variant) {
    // Nobody computes while another variant's rank still does.
    CRIA_RETURN_IF_ERROR(world_->Barrier().Wait());
    Measurement m;
    if (!variant.one_process() || world_->rank() == 0) {
      CRIA_RETURN_IF_ERROR(Train(variant, &m));
    }
    std::vector<int64_t> most = {m.planned_bytes, m.used_bytes};
    CRIA_RETURN_IF_ERROR(world_
                             ->AllReduce({.input = most.data(),
                                          .output = most.data(),
                                          .count = 2,
                                          .dtype = comm::DataType::kInt64,
                                          .op = comm::ReduceOp::kMax})
                             .Wait());
    m.planned_bytes = most[0];
    m.used_bytes = most[1];
    return m;
  }

 private:
  Status Train(const Variant& variant, Measurement* m) {
    const Layout& layout = variant.layout;
    const std::string out_dir = JoinPath(folder_, FormatLayout(layout));
    std::unique_ptr<comm::Communicator> group;
    std::optional<model::Groups> groups;
    if (!variant.one_process()) {
      std::vector<int> ranks(kRanks);
      std::iota(ranks.begin(), ranks.end(), 0);
      CRIA_ASSIGN_OR_RETURN(group, world_->NewGroup({.ranks = ranks, .name = "layout"}));
      CRIA_ASSIGN_OR_RETURN(groups, model::MakeGroups(layout, config_.model, group.get()));
    }
    SetNumThreads(variant.one_process() ? kRanks : 1);
    const TrainConfig config = WithLayout(config_, layout);
    const int64_t before = UsedMemoryBytes();
    // Its own: what a backend keeps of one run's weights is no use of the next one.
    const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
    m->planned_bytes = PlanRank(config, layout, world_->rank(), *ops).total();
    MemoryWatcher watcher;
    TrainLoop loop(config, {.out_dir = out_dir,
                            .ops = ops.get(),
                            .clock = RealClock(),
                            .groups = groups ? &*groups : nullptr,
                            .times = variant.one_process() ? nullptr : times_,
                            .watcher = &watcher});
    CRIA_RETURN_IF_ERROR(loop.Open(train_.get(), val_.get()));
    CRIA_RETURN_IF_ERROR(loop.Run().status());
    m->used_bytes = watcher.used_bytes() - before;
    if (world_->rank() != 0) return OkStatus();
    CRIA_RETURN_IF_ERROR(ReadMetrics(JoinPath(out_dir, "metrics.jsonl"), m));
    return RemoveAll(out_dir);
  }

  const TrainConfig config_;
  const std::string folder_;
  comm::Communicator* const world_;
  debug::StreamTimes* const times_;
  std::unique_ptr<TokenDataset> train_, val_;
};

Status VerifyLosses(const Variant& variant, const std::vector<double>& losses,
                    const std::vector<double>& reference, model::Precision precision) {
  const double limit = precision == model::Precision::kFp32 ? 1e-5 : 2e-2;
  if (losses.size() != reference.size()) {
    return InternalError(variant.name, ": ", losses.size(), " steps of ", reference.size());
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    if (std::abs(losses[i] - reference[i]) <= limit * std::abs(reference[i])) continue;
    return InternalError(variant.name, ": step ", i + 1, " has loss ", losses[i],
                         ", one process has ", reference[i]);
  }
  return OkStatus();
}

void AddSample(const Measurement& m, Variant* variant) {
  variant->tokens_per_s.Add(m.tokens_per_s);
  variant->comm_share.Add(m.comm_share);
  variant->comm_overlap.Add(m.comm_overlap);
}

// Its speed beside one process's, within each round.
double Ratio(const Variant& variant, const Variant& one) {
  return MedianRatio(variant.tokens_per_s, one.tokens_per_s);
}

std::string FormatTable(const std::vector<Variant>& variants) {
  std::string text = StrFormat("%-26s %9s %7s %9s %7s %7s %10s %10s\n", "", "tok/s", "spread",
                               "x one", "comm", "hidden", "planned", "used");
  for (const Variant& v : variants) {
    text += StrFormat("%-26s %9.0f %6.1f%% %9.2f", v.name.c_str(), v.tokens_per_s.Median(),
                      100 * v.tokens_per_s.Spread(), Ratio(v, variants[0]));
    text += v.one_process() ? StrFormat(" %7s %7s", "-", "-")
                            : StrFormat(" %6.1f%% %6.1f%%", 100 * v.comm_share.Median(),
                                        100 * v.comm_overlap.Median());
    text += StrFormat(" %10s %10s\n", HumanBytes(static_cast<double>(v.planned_bytes)).c_str(),
                      HumanBytes(static_cast<double>(v.used_bytes)).c_str());
  }
  return text +
         "\nx one: speed beside one process, median of ratios within a round. comm: share of a "
         "step with\ncommunication in it; hidden: how much of that went on behind computing. "
         "Memory of the rank that\nneeds most, without the process itself.\n";
}

Json ToJson(const std::vector<Variant>& variants) {
  Json list = Json::array();
  for (const Variant& v : variants) {
    list.push_back({{"name", v.name},
                    {"ranks", v.layout.world_size()},
                    {"threads", v.one_process() ? kRanks : 1},
                    {"tokens_per_s", v.tokens_per_s.Median()},
                    {"spread", v.tokens_per_s.Spread()},
                    {"times_one_process", Ratio(v, variants[0])},
                    {"comm_share", v.comm_share.Median()},
                    {"comm_overlap", v.comm_overlap.Median()},
                    {"planned_bytes", v.planned_bytes},
                    {"used_bytes", v.used_bytes}});
  }
  return list;
}

StatusOr<TrainConfig> LoadConfig(const LayoutsBenchOptions& options) {
  CRIA_ASSIGN_OR_RETURN(TrainConfig config, LoadTrainConfig(options.config, options.set));
  if (config.steps <= kWarmUpSteps) {
    return InvalidArgumentError("steps: ", config.steps, ", of which ", kWarmUpSteps,
                                " are not counted");
  }
  return config;
}

// The command itself.
Status Start(const LayoutsBenchOptions& options, std::vector<std::string> arguments) {
  CRIA_ASSIGN_OR_RETURN(const TrainConfig config, LoadConfig(options));
  CRIA_ASSIGN_OR_RETURN(const JobData data, PrepareJob(config, stderr, nullptr));
  CRIA_ASSIGN_OR_RETURN(const auto folder, ScratchFolder::Create());
  for (const std::string& more :
       {std::string("--set"), "data.path=" + data.dir, std::string("--folder"), folder->File("")}) {
    arguments.push_back(more);
  }
  return LaunchSelf(arguments, kRanks);
}

Status RunRank(const LayoutsBenchOptions& options, std::FILE* out, std::FILE* notes) {
  // What a run frees goes back to the system, so that the next one's use is seen.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  CRIA_ASSIGN_OR_RETURN(const TrainConfig config, LoadConfig(options));
  debug::StreamTimes times(RealClock(), {});
  CRIA_ASSIGN_OR_RETURN(comm::WorldOptions world_options,
                        comm::ReadWorldOptions(comm::ProcessEnvironment()));
  world_options.observer = &times;
  CRIA_ASSIGN_OR_RETURN(const auto world, comm::JoinWorld(world_options));
  BenchRank rank(config, options.folder, world.get(), &times);
  CRIA_RETURN_IF_ERROR(rank.Open());
  const bool reports = world->rank() == 0;
  const auto note = [&](const std::string& text) {
    if (!reports) return;
    std::fprintf(notes, "%s\n", text.c_str());
    std::fflush(notes);
  };
  std::vector<Variant> variants = AllVariants();
  note(CpuName());
  std::vector<double> reference;
  for (int round = 0; round <= options.rounds; ++round) {
    for (Variant& variant : variants) {
      CRIA_ASSIGN_OR_RETURN(const Measurement m, rank.Run(variant));
      if (!reports) continue;
      if (round > 0) {
        AddSample(m, &variant);
        continue;
      }
      if (reference.empty()) reference = m.losses;
      CRIA_RETURN_IF_ERROR(VerifyLosses(variant, m.losses, reference, config.Precision()));
      variant.planned_bytes = m.planned_bytes;
      variant.used_bytes = m.used_bytes;
    }
    note(round == 0 ? "verified: every layout has the losses of one process"
                    : StrCat("round ", round, " of ", options.rounds));
  }
  if (!reports) return OkStatus();
  if (!options.json) {
    std::fprintf(out, "\n%s", FormatTable(variants).c_str());
    return OkStatus();
  }
  CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(ToJson(variants), 2));
  std::fprintf(out, "%s\n", text.c_str());
  return OkStatus();
}

}  // namespace

Status RunLayoutsBench(const LayoutsBenchOptions& options,
                       const std::vector<std::string>& arguments, std::FILE* out,
                       std::FILE* notes) {
  return options.folder.empty() ? Start(options, arguments) : RunRank(options, out, notes);
}

}  // namespace cria::trainer

// cria train: the main job. Parses flags, wires the parts together, runs the loop, shows what was
// learned.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/stop_signals.h"
#include "debug/stream_times.h"
#include "model/cpu/cpu_ops.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/train_config.h"
#include "trainer/generate/run_samples.h"
#include "trainer/loop/agreement.h"
#include "trainer/loop/job_ranks.h"
#include "trainer/loop/memory.h"
#include "trainer/loop/peak_flops.h"
#include "trainer/loop/prepare_job.h"
#include "trainer/loop/step_trace.h"
#include "trainer/loop/train_loop.h"
#include "trainer/models/model_files.h"
#include "trainer/models/run_model.h"

namespace cria::trainer {
namespace {

std::atomic<int> num_stop_signals{0};
std::atomic<bool> stop_preparing{false};

// The first asks for an orderly end, the second ends at once. One rank of a job `answers` for all.
void TakeSignals(StopSignals* signals, bool answers) {
  signals->Take([answers](int signal_number) {
    stop_preparing = true;
    if (num_stop_signals.fetch_add(1) > 0) _exit(128 + signal_number);
    if (answers) std::fputs("\nstopping after this step (again: at once)\n", stderr);
  });
}

struct Flags {
  std::string config;
  std::vector<std::string> set;
  int64_t steps = 0;
  std::string out;
  std::string resume;
  std::string init;
  bool plan = false;
  StepTraceOptions trace;
};

// runs/NAME, or runs/NAME-2, ... : the first that no run has used; with --resume auto the last that
// one has.
std::string DefaultOutDir(const std::string& name, bool resume) {
  std::string last = JoinPath("runs", name);
  for (int i = 1;; ++i) {
    const std::string dir = JoinPath("runs", i == 1 ? name : StrCat(name, "-", i));
    if (!Exists(JoinPath(dir, "config.yaml"))) return resume ? last : dir;
    last = dir;
  }
}

std::string NameOf(const std::string& config) {
  const std::string base = BaseName(config);
  const size_t dot = base.rfind(".yaml");
  return dot == std::string::npos ? base : base.substr(0, dot);
}

// The run's folder that a checkpoint's folder lies in: OUT of OUT/checkpoints/step_N. Empty for a
// checkpoint elsewhere.
std::string RunOfCheckpoint(const std::string& checkpoint) {
  const std::string parent = DirName(checkpoint);
  return BaseName(parent) == "checkpoints" ? DirName(parent) : std::string();
}

bool IsSameDir(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

// --out, or where it is not given the folder of the run to go on with, or a new one.
StatusOr<std::string> OutDir(const Flags& flags) {
  if (!flags.out.empty()) return flags.out;
  if (!flags.resume.empty() && flags.resume != "auto") {
    const std::string run = RunOfCheckpoint(flags.resume);
    if (!run.empty()) return run;
    return InvalidArgumentError("--resume ", flags.resume,
                                ": not in a run's checkpoints folder; --out must say where to go "
                                "on");
  }
  return DefaultOutDir(flags.config.empty() ? "default" : NameOf(flags.config),
                       !flags.resume.empty());
}

// The checkpoint that --resume names; empty for a new run.
StatusOr<std::string> NamedCheckpoint(const Flags& flags, const std::string& out_dir) {
  const bool has_run = Exists(JoinPath(out_dir, "config.yaml"));
  if (flags.resume.empty()) {
    if (!has_run) return std::string();
    return InvalidArgumentError(out_dir,
                                " holds a run already: go on with it by --resume auto, or choose "
                                "another --out");
  }
  if (!IsDir(flags.resume)) return NotFoundError("--resume ", flags.resume, ": no such folder");
  // Another run's metrics and checkpoints must not be cut to this one's step.
  if (has_run && !IsSameDir(RunOfCheckpoint(flags.resume), out_dir)) {
    return InvalidArgumentError(out_dir, " holds a run that ", flags.resume,
                                " is not of: choose another --out");
  }
  return flags.resume;
}

// The checkpoint of --resume auto, the same on all ranks, which share the hashing; empty where
// there is none yet.
StatusOr<std::string> NewestCheckpoint(const std::string& out_dir, const JobRanks& ranks) {
  const std::string checkpoints = JoinPath(out_dir, "checkpoints");
  std::vector<std::string> rejected;
  StatusOr<std::string> newest = FindNewestVerified(checkpoints, &rejected, ranks.world());
  if (ranks.first()) {
    for (const std::string& reason : rejected) LogWarning("passed over ", reason);
  }
  if (newest.status().code() == StatusCode::kNotFound && rejected.empty()) {
    if (ranks.first()) LogInfo("no checkpoint in ", checkpoints, " yet: starting from step 0");
    return std::string();
  }
  return newest;
}

// The checkpoint to go on from; empty for a new run.
StatusOr<std::string> FindCheckpoint(const Flags& flags, const std::string& out_dir,
                                     JobRanks* ranks) {
  if (flags.resume == "auto") return NewestCheckpoint(out_dir, *ranks);
  return ranks->FromFirst([&] { return NamedCheckpoint(flags, out_dir); });
}

// The configuration that a resumed run was started with; empty when there is none.
std::string SavedConfig(const Flags& flags, const std::string& out_dir) {
  if (flags.resume.empty()) return "";
  for (const std::string& run : {out_dir, RunOfCheckpoint(flags.resume)}) {
    const std::string path = JoinPath(run, "config.yaml");
    if (!run.empty() && Exists(path)) return path;
  }
  return "";
}

// The model of --init, or of the key `init`; opened at most once.
class InitModel {
 public:
  StatusOr<const ModelFiles*> Open(const std::string& path) {
    if (!files_) {
      StatusOr<ModelFiles> opened = OpenModel(path);
      if (!opened.ok()) return Annotate(opened.status(), "--init");
      files_.emplace(std::move(*opened));
    }
    return &*files_;
  }

 private:
  std::optional<ModelFiles> files_;
};

// A value of --set that YAML reads as this text.
std::string QuotedForYaml(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

StatusOr<TrainConfig> LoadConfig(const Flags& flags, const std::string& out_dir, InitModel* init) {
  std::vector<std::string> overrides;
  // Where nobody named a job, the default one's sizes are nobody's wish.
  if (!flags.init.empty() && flags.config.empty()) overrides.push_back("model.preset=\"\"");
  overrides.insert(overrides.end(), flags.set.begin(), flags.set.end());
  if (flags.steps > 0) overrides.push_back(StrCat("steps=", flags.steps));
  if (!flags.init.empty()) {
    std::error_code error;
    const std::string path = std::filesystem::absolute(flags.init, error).lexically_normal();
    overrides.push_back("init=" + QuotedForYaml(error ? flags.init : path));
  }
  const OpenInit open_init = [&](const std::string& path) -> StatusOr<model::LlamaConfig> {
    CRIA_ASSIGN_OR_RETURN(const ModelFiles* files, init->Open(path));
    return files->config;
  };
  // A run that goes on without a config named is the run that its folder describes, sizes and all.
  const std::string saved = flags.config.empty() ? SavedConfig(flags, out_dir) : "";
  if (!saved.empty()) return LoadTrainConfig(saved, overrides);
  return LoadTrainConfig(flags.config.empty() ? "default" : flags.config, overrides, open_init);
}

// The weights that a new run starts from; null for random ones.
StatusOr<const ModelFiles*> FindInit(const TrainConfig& config, const std::string& checkpoint,
                                     InitModel* init) {
  if (config.init.empty() || !checkpoint.empty()) return nullptr;
  CRIA_ASSIGN_OR_RETURN(const ModelFiles* files, init->Open(config.init));
  CRIA_RETURN_IF_ERROR(CheckInitModel(config.model, files->config, config.init));
  if (!files->tokenizer && config.data.path.empty()) {
    return InvalidArgumentError(
        "--init ", config.init, ": it has no tokenizer (", Message(files->tokenizer_status),
        "); prepare data with the one that it was trained with, and name it: --set data.path=DIR");
  }
  return files;
}

void PrintSummary(const TrainSummary& summary, const MemoryUse& memory, const JobRanks& ranks,
                  const std::string& out_dir) {
  std::printf("\n%lld steps, %s tokens in %s (%s tokens/s)\n",
              static_cast<long long>(summary.steps),
              HumanCount(static_cast<double>(summary.tokens)).c_str(),
              HumanSeconds(summary.seconds).c_str(), HumanCount(summary.tokens_per_s).c_str());
  if (summary.steps > 0) {
    std::printf("loss %.4f -> %.4f", summary.first_loss, summary.last_loss);
  } else {
    std::printf("no step taken");
  }
  if (summary.val_loss) std::printf(", validation %.4f", *summary.val_loss);
  if (summary.skipped_steps > 0) {
    std::printf(", %lld steps skipped", static_cast<long long>(summary.skipped_steps));
  }
  std::printf("\nmemory: %s planned, %s used",
              HumanBytes(static_cast<double>(memory.planned)).c_str(),
              HumanBytes(static_cast<double>(memory.used)).c_str());
  if (ranks.size() > 1) std::printf(" (rank %d, the most)", memory.rank);
  std::printf("\n");
  std::printf("run: %s, checkpoint: %s\n", out_dir.c_str(), summary.checkpoint_dir.c_str());
}

// The run is complete whatever comes of this.
void PrintSamples(const TrainConfig& config, const Tokenizer& tokenizer,
                  const std::string& checkpoint_dir, model::Ops* ops) {
  if (config.sample.prompts.empty() || config.sample.tokens == 0) return;
  const RunSampleOptions options = {.prompts = config.sample.prompts,
                                    .sampling = {.temperature = config.sample.temperature,
                                                 .top_k = config.sample.top_k,
                                                 .seed = static_cast<uint64_t>(config.seed)},
                                    .max_tokens = config.sample.tokens,
                                    .max_positions = config.train.seq};
  const auto texts = SampleRun(checkpoint_dir, tokenizer, options, ops);
  if (!texts.ok()) return LogWarning("no samples: ", Message(texts.status()));
  std::printf("\nsamples (temperature %g):\n", config.sample.temperature);
  for (const std::string& text : *texts) std::printf("  %s\n", text.c_str());
}

// The tokenizer that the data must have been encoded with: that of the model to start from, which a
// run keeps in its folder. None for a run that started from random weights.
StatusOr<std::optional<Tokenizer>> InitTokenizer(const TrainConfig& config,
                                                 const std::string& checkpoint,
                                                 const ModelFiles* start) {
  if (start != nullptr) return start->tokenizer;
  if (config.init.empty()) return std::optional<Tokenizer>();
  const std::string path = JoinPath(RunOfCheckpoint(checkpoint), "tokenizer.json");
  if (!Exists(path)) return std::optional<Tokenizer>();
  CRIA_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(path));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

Status CheckFlags(const Flags& flags) {
  if (flags.trace.first < 1 || flags.trace.last < flags.trace.first) {
    return InvalidArgumentError("--trace-steps ", flags.trace.first, " ", flags.trace.last,
                                ": a first step from 1 on and a last one not before it");
  }
  if (flags.init.empty() || flags.resume.empty() || flags.resume == "auto") return OkStatus();
  return InvalidArgumentError("--init ", flags.init, ": a new run starts from a model; --resume ",
                              flags.resume, " goes on with a run");
}

Status PrintPlan(const Flags& flags) {
  CRIA_ASSIGN_OR_RETURN(const std::string out_dir, OutDir(flags));
  InitModel init;
  CRIA_ASSIGN_OR_RETURN(const TrainConfig config, LoadConfig(flags, out_dir, &init));
  const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  std::printf("%s", DescribePlan(config, PlanJob(config, config.Layout(), *ops)).c_str());
  return OkStatus();
}

// The rate of all ranks' matrix products, in flops a second.
StatusOr<double> PeakFlops(const TrainConfig& config, model::Ops* ops, const JobRanks& ranks) {
  if (config.train.peak_gflops > 0) return config.train.peak_gflops * 1e9;
  const double peak = MeasurePeakFlops(ops, model::ComputeType(config.Precision()), RealClock());
  CRIA_ASSIGN_OR_RETURN(const int64_t sum,
                        Agreement(ranks.world()).Sum(static_cast<int64_t>(peak)));
  return static_cast<double>(sum);
}

StatusOr<JobData> PrepareOnce(const TrainConfig& config, const Tokenizer* tokenizer,
                              JobRanks* ranks) {
  std::FILE* progress = ranks->first() ? stderr : nullptr;
  std::optional<JobData> data;
  CRIA_RETURN_IF_ERROR(ranks->OncePerHost([&]() -> Status {
    CRIA_ASSIGN_OR_RETURN(data, PrepareJob(config, progress, &stop_preparing, tokenizer));
    return OkStatus();
  }));
  if (data) return *std::move(data);
  return OpenJob(config, tokenizer);
}

void PrintJob(const TrainConfig& config, const JobPlan& plan, const JobData& data, double peak,
              const JobRanks& ranks) {
  const char* measured = config.train.peak_gflops == 0 ? ", the GEMM rate measured here" : "";
  std::printf("%s%s, %d threads; MFU is a share of %.1f GFLOP/s%s\n",
              DescribePlan(config, plan).c_str(), CpuName().c_str(), NumThreads(), peak / 1e9,
              measured);
  if (ranks.groups() != nullptr) {
    std::printf("ranks: %d (%s)\n", ranks.size(), model::Name(ranks.layout()).c_str());
  }
  std::printf("data: %s, %s tokens to train on, %s to validate on\n", data.dir.c_str(),
              HumanCount(static_cast<double>(data.train.num_tokens())).c_str(),
              HumanCount(static_cast<double>(data.val.num_tokens())).c_str());
  std::fflush(stdout);
}

// What a new run's folder holds besides what the loop writes.
Status WriteSideFiles(const std::string& out_dir, const JobData& data, const ModelFiles* start) {
  CRIA_RETURN_IF_ERROR(MakeDirs(out_dir));
  if (start != nullptr) CRIA_RETURN_IF_ERROR(SaveGenerationSettings(*start, out_dir));
  return data.tokenizer.Save(JoinPath(out_dir, "tokenizer.json"));
}

Status RunRank(const Flags& flags, StopSignals* signals, JobRanks* ranks, debug::StreamTimes* times,
               StepTrace* trace) {
  // The first rank looks at the folders: the others might see it write there already.
  CRIA_ASSIGN_OR_RETURN(const std::string out_dir, ranks->FromFirst([&] { return OutDir(flags); }));
  CRIA_ASSIGN_OR_RETURN(const std::string checkpoint, FindCheckpoint(flags, out_dir, ranks));
  InitModel init;
  CRIA_ASSIGN_OR_RETURN(const TrainConfig config, LoadConfig(flags, out_dir, &init));
  CRIA_RETURN_IF_ERROR(ranks->MakeGroups(config));
  trace->SetRank(ranks->layout(), ranks->rank());
  CRIA_ASSIGN_OR_RETURN(const ModelFiles* start, FindInit(config, checkpoint, &init));
  if (config.train.warmup > config.steps && ranks->first()) {
    LogInfo("the run's ", config.steps, " steps end inside the warm-up of ", config.train.warmup,
            ": the learning rate stays under ", config.train.lr);
  }
  TakeSignals(signals, ranks->first());
  CRIA_ASSIGN_OR_RETURN(const std::optional<Tokenizer> tokenizer,
                        InitTokenizer(config, checkpoint, start));
  CRIA_ASSIGN_OR_RETURN(const JobData data,
                        PrepareOnce(config, tokenizer ? &*tokenizer : nullptr, ranks));
  const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  CRIA_ASSIGN_OR_RETURN(const double peak, PeakFlops(config, ops.get(), *ranks));
  const JobPlan plan = PlanJob(config, ranks->layout(), *ops);
  if (ranks->first()) PrintJob(config, plan, data, peak, *ranks);

  TrainLoopOptions options = {.out_dir = out_dir,
                              .ops = ops.get(),
                              .clock = RealClock(),
                              .stop = &num_stop_signals,
                              .progress = stderr,
                              .peak_flops = peak,
                              .groups = ranks->groups(),
                              .trace = trace};
  if (ranks->groups() != nullptr) options.times = times;
  auto loop = std::make_unique<TrainLoop>(config, options);
  CRIA_RETURN_IF_ERROR(loop->Open(&data.train, &data.val));
  if (start != nullptr) {
    CRIA_RETURN_IF_ERROR(loop->Init(*start->weights));
    if (ranks->first()) LogInfo("starting from the weights of ", config.init);
  }
  if (!checkpoint.empty()) {
    CRIA_RETURN_IF_ERROR(loop->Resume(checkpoint));
    if (ranks->first()) LogInfo("going on from ", checkpoint);
  }
  if (ranks->first()) CRIA_RETURN_IF_ERROR(WriteSideFiles(out_dir, data, start));
  CRIA_ASSIGN_OR_RETURN(const TrainSummary summary, loop->Run());
  const RankPlan mine = PlanRank(config, ranks->layout(), ranks->rank(), *ops);
  CRIA_ASSIGN_OR_RETURN(const MemoryUse memory,
                        LargestUse(mine.total() + plan.runtime, ranks->world()));
  if (!ranks->first()) return OkStatus();
  PrintSummary(summary, memory, *ranks, out_dir);
  if (summary.stopped) {
    const std::string launch =
        ranks->size() == 1 ? "" : StrCat("launch -n ", ranks->size(), " -- ");
    std::printf("stopped; go on with: ./cria %strain --out %s --resume auto\n", launch.c_str(),
                out_dir.c_str());
    return OkStatus();
  }
  loop.reset();  // its memory is for the samples
  PrintSamples(config, data.tokenizer, summary.checkpoint_dir, ops.get());
  return OkStatus();
}

Status RunTrain(const Flags& flags, StopSignals* signals) {
  CRIA_RETURN_IF_ERROR(CheckFlags(flags));
  if (flags.plan) return PrintPlan(flags);
  // Both outlive the communicators that they observe.
  StepTrace trace(flags.trace, RealClock());
  debug::StreamTimes times(
      RealClock(), {.trace = trace.trace(),
                    .order = {"tp", "cp", "operands", "kv", "replicas", "weights", "stage"}});
  CRIA_ASSIGN_OR_RETURN(JobRanks ranks, JobRanks::Join(&times));
  const Status status = RunRank(flags, signals, &ranks, &times, &trace);
  if (!status.ok()) ranks.Abort(status);
  return status;
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) {
  cria::StopSignals signals;  // before any other thread
  cria::trainer::Flags flags;
  CLI::App app("Trains a Llama; without arguments a toy one on the King James Bible.",
               "cria train");
  app.add_option("config", flags.config, "a YAML file, or the name of one in configs/jobs");
  app.add_option("--set", flags.set, "key=value over the file, as in --set train.lr=1e-3")
      ->take_all();
  app.add_option("--steps", flags.steps, "optimizer steps of the whole run")
      ->check(CLI::PositiveNumber);
  app.add_option("--out", flags.out, "the run's folder [runs/NAME]");
  app.add_option("--resume", flags.resume,
                 "auto: the newest checkpoint of --out that verifies; or a checkpoint's folder");
  app.add_option("--init", flags.init,
                 "start from the weights, sizes and tokenizer of a model: a folder of Hugging "
                 "Face's or Meta's, a GGUF file, a run");
  app.add_option("--trace", flags.trace.path,
                 "write a trace of steps 3 and 4 of this run, all ranks in one file, for "
                 "ui.perfetto.dev")
      ->type_name("FILE");
  std::pair<int64_t, int64_t> trace_steps = {flags.trace.first, flags.trace.last};
  app.add_option("--trace-steps", trace_steps, "first and last step of the trace, from 1")
      ->needs("--trace");
  app.add_flag("--plan", flags.plan, "print parameters, memory and flops a token, and end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  flags.trace.first = trace_steps.first;
  flags.trace.last = trace_steps.second;
  const cria::Status status = cria::trainer::RunTrain(flags, &signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cria train: %s\n", cria::Message(status).c_str());
  return cria::ExitCode(status);
}

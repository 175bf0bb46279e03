#include "trainer/bench/train_bench.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/parallel.h"
#include "model/cpu/cpu_ops.h"
#include "trainer/bench/bench_step.h"
#include "trainer/bench/gemm_baseline.h"
#include "trainer/bench/samples.h"
#include "trainer/bench/train_peer.h"
#include "trainer/bench/verify_step.h"

namespace cria::trainer {
namespace {

using model::Precision;

// Which GEMM baseline: operands in bf16, threads.
using BaselineKey = std::pair<bool, int>;

// One thing that is timed: an implementation at a precision with a number of threads.
struct Variant {
  std::string impl;  // "cria", "torch_eager", "torch_compile"
  std::string precision;
  int threads = 1;
  bool is_fp32 = true;
  // A step that takes a minute is timed once, without a warm-up.
  bool is_once = false;
  std::function<StatusOr<double>()> run;  // seconds of one step
  Samples seconds;

  std::string ToString() const { return StrCat(impl, " ", precision, " ", threads); }
};

class TrainBench {
 public:
  TrainBench(const TrainBenchOptions& options, std::FILE* out, std::FILE* notes)
      : options_(options),
        out_(out),
        notes_(notes),
        shape_(options.tiny ? TinyBenchShape() : DefaultBenchShape()),
        batch_(shape_),
        ops_(model::cpu::NewCpuOps()) {
    for (const int threads : options.threads) {
      baselines_[{false, threads}];
      if (CpuHasBf16()) baselines_[{true, threads}];
    }
  }

  Status Run() {
    std::fprintf(notes_, "%s\n%s\n", CpuName().c_str(), DescribeShape(shape_).c_str());
    CRIA_RETURN_IF_ERROR(AddOurs());
    if (!options_.peer.empty()) CRIA_RETURN_IF_ERROR(AddPeer());
    gemm_fp32_ =
        std::make_unique<GemmBaseline>(StepGemms(shape_.config, shape_.tokens(), /*bf16=*/false));
    if (CpuHasBf16()) {
      gemm_bf16_ = std::make_unique<GemmBaseline>(StepGemms(shape_.config, shape_.tokens(), true));
    }
    for (int round = 0; round <= options_.reps; ++round) CRIA_RETURN_IF_ERROR(RunRound(round));
    return options_.json ? PrintJson() : PrintTable();
  }

 private:
  double Flops() const { return TotalFlops(gemm_fp32_->shapes()); }

  Status AddOurs() {
    std::unique_ptr<BenchStep> fp32 = MakeStep(Precision::kFp32);
    CRIA_ASSIGN_OR_RETURN(reference_,
                          VerifyThreads(fp32.get(), Precision::kFp32, options_.threads));
    Note(StrCat("verified: fp32 loss ", reference_.loss, ", gradient norm ", reference_.grad_norm,
                ThreadsNote()));
    reference_step_ = fp32.get();
    steps_.push_back(std::move(fp32));
    for (const Precision precision : options_.precisions) {
      BenchStep* step = reference_step_;
      if (precision != Precision::kFp32) {
        steps_.push_back(MakeStep(precision));
        step = steps_.back().get();
        const std::string name = model::PrecisionName(precision);
        CRIA_ASSIGN_OR_RETURN(const StepResult result,
                              VerifyThreads(step, precision, options_.threads));
        CRIA_RETURN_IF_ERROR(VerifyClose(name, result, reference_, precision));
        Note(StrCat("verified: ", name, " loss ", result.loss, ", gradient norm ", result.grad_norm,
                    ThreadsNote()));
      }
      for (const int threads : options_.threads) AddOurVariant(step, precision, threads);
    }
    return OkStatus();
  }

  std::unique_ptr<BenchStep> MakeStep(Precision precision) {
    return std::make_unique<BenchStep>(shape_, precision, ops_.get(), &batch_);
  }

  std::string ThreadsNote() const {
    return options_.threads.size() < 2 ? "" : ", the same bits with each number of threads";
  }

  void Note(const std::string& text) {
    std::fprintf(notes_, "%s\n", text.c_str());
    std::fflush(notes_);
  }

  void AddOurVariant(BenchStep* step, Precision precision, int threads) {
    variants_.push_back({.impl = "cria",
                         .precision = model::PrecisionName(precision),
                         .threads = threads,
                         .is_fp32 = precision == Precision::kFp32,
                         .is_once = false,
                         .run = [step, threads]() -> StatusOr<double> {
                           SetNumThreads(threads);
                           const double start = RealClock()->MonotonicSeconds();
                           step->Run();
                           return RealClock()->MonotonicSeconds() - start;
                         },
                         .seconds = {}});
  }

  bool Wants(bool fp32) const {
    return std::any_of(options_.precisions.begin(), options_.precisions.end(),
                       [&](Precision p) { return (p == Precision::kFp32) == fp32; });
  }

  Status AddPeer() {
    CRIA_ASSIGN_OR_RETURN(peer_, TrainPeer::Start(options_.peer, reference_step_));
    Note(StrCat("peer: ", peer_->version(), " in ", options_.peer));
    const int most = *std::max_element(options_.threads.begin(), options_.threads.end());
    for (const std::string mode : {"eager", "compile"}) {
      const StatusOr<StepResult> checked = peer_->Check({mode, "fp32", most});
      if (checked.status().code() == StatusCode::kInternal && mode == "compile") {
        // It needs a compiler and more; eager needs nothing. A dead peer is another matter.
        Note(StrCat("left out: ", Message(checked.status())));
        continue;
      }
      CRIA_RETURN_IF_ERROR(checked.status());
      CRIA_RETURN_IF_ERROR(VerifyClose("torch " + mode, *checked, reference_, Precision::kFp32));
      Note(StrCat("verified: torch ", mode, " fp32 loss ", checked->loss, ", gradient norm ",
                  checked->grad_norm));
      for (const int threads : options_.threads) {
        if (Wants(true)) AddPeerVariant({mode, "fp32", threads}, false);
        if (Wants(false) && CpuHasBf16()) AddPeerVariant({mode, "bf16", threads}, false);
      }
      // Without bf16 instructions torch takes seventeen times as long: one step tells.
      if (Wants(false) && !CpuHasBf16() && mode == "eager") {
        AddPeerVariant({mode, "bf16", most}, true);
        Note("this CPU has no bf16: one step of torch eager bf16, none compiled");
      }
    }
    return OkStatus();
  }

  void AddPeerVariant(const PeerVariant& variant, bool is_once) {
    variants_.push_back({.impl = "torch_" + variant.mode,
                         .precision = variant.precision,
                         .threads = variant.threads,
                         .is_fp32 = variant.precision == "fp32",
                         .is_once = is_once,
                         .run = [this, variant] { return peer_->Run(variant); },
                         .seconds = {}});
  }

  // Every variant and every baseline once, in turns. Round 0 warms up and is not counted.
  Status RunRound(int round) {
    for (Variant& variant : variants_) {
      if (variant.is_once && round != 1) continue;
      CRIA_ASSIGN_OR_RETURN(const double seconds, variant.run());
      if (round > 0) variant.seconds.Add(seconds);
    }
    for (auto& [key, samples] : baselines_) {
      const double seconds = (key.first ? gemm_bf16_ : gemm_fp32_)->RunStep(key.second);
      if (round > 0) samples.Add(seconds);
    }
    Note(round == 0 ? "warmed up" : StrCat("round ", round, " of ", options_.reps));
    return OkStatus();
  }

  const Samples& BaselineOf(const Variant& variant) const {
    return baselines_.at({!variant.is_fp32 && CpuHasBf16(), variant.threads});
  }

  // Share of a step that its products would take at oneDNN's rate.
  double GemmFraction(const Variant& variant) const {
    return MedianRatio(BaselineOf(variant), variant.seconds);
  }

  double TokensPerSecond(double seconds) const {
    return static_cast<double>(shape_.tokens()) / seconds;
  }

  // The fastest peer of the same kind of precision and as many threads; null when there is none.
  const Variant* BestPeer(const Variant& ours) const {
    const Variant* best = nullptr;
    for (const Variant& variant : variants_) {
      if (variant.impl == "cria" || variant.is_fp32 != ours.is_fp32 ||
          variant.threads != ours.threads) {
        continue;
      }
      if (best == nullptr || variant.seconds.Median() < best->seconds.Median()) best = &variant;
    }
    return best;
  }

  const Variant* OurFp32(int threads) const {
    for (const Variant& variant : variants_) {
      if (variant.impl == "cria" && variant.is_fp32 && variant.threads == threads) return &variant;
    }
    return nullptr;
  }

  Status PrintJson() const {
    Json list = Json::array();
    for (const Variant& variant : variants_) {
      list.push_back({{"impl", variant.impl},
                      {"precision", variant.precision},
                      {"threads", variant.threads},
                      {"tokens_per_s_median", TokensPerSecond(variant.seconds.Median())},
                      {"tokens_per_s_best", TokensPerSecond(variant.seconds.Best())},
                      {"gemm_fraction", GemmFraction(variant)}});
    }
    CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(list, 2));
    std::fprintf(out_, "%s\n", text.c_str());
    return OkStatus();
  }

  Status PrintTable() const {
    std::fprintf(out_, "\n%-34s %9s %9s %7s %9s %9s %8s %8s\n", "", "ms median", "best", "spread",
                 "tok/s", "best", "GFLOP/s", "of GEMM");
    for (const auto& [key, samples] : baselines_) {
      PrintRow(StrCat("oneDNN ", key.first ? "bf16" : "fp32", " GEMMs of a step, ", key.second,
                      key.second == 1 ? " thread" : " threads"),
               samples, 0, 1);
    }
    for (const Variant& variant : variants_) {
      PrintRow(StrCat(variant.impl, " ", variant.precision, ", ", variant.threads,
                      variant.threads == 1 ? " thread" : " threads"),
               variant.seconds, shape_.tokens(), GemmFraction(variant));
    }
    std::fprintf(out_, "\n");
    for (const Variant& variant : variants_) PrintRatios(variant);
    std::fprintf(
        out_,
        "\nGFLOP/s: 6 x parameters in matrix products x tokens; attention is not counted.\n"
        "of GEMM: those flops at oneDNN's rate, over the whole step's time; ratios are "
        "medians of %d rounds in turns.\n",
        options_.reps);
    return OkStatus();
  }

  void PrintRow(const std::string& name, const Samples& seconds, int64_t tokens,
                double fraction) const {
    std::fprintf(out_, "%-34s %9.1f %9.1f %6.0f%%", name.c_str(), 1e3 * seconds.Median(),
                 1e3 * seconds.Best(), 100 * seconds.Spread());
    if (tokens > 0) {
      std::fprintf(out_, " %9.0f %9.0f", TokensPerSecond(seconds.Median()),
                   TokensPerSecond(seconds.Best()));
    } else {
      std::fprintf(out_, " %9s %9s", "", "");
    }
    std::fprintf(out_, " %8.1f %7.1f%%\n", 1e-9 * Flops() / seconds.Median(), 100 * fraction);
  }

  void PrintRatios(const Variant& ours) const {
    if (ours.impl != "cria") return;
    if (const Variant* peer = BestPeer(ours)) {
      std::fprintf(out_, "%s: %.2f x the speed of %s\n", ours.ToString().c_str(),
                   MedianRatio(peer->seconds, ours.seconds), peer->ToString().c_str());
    }
    const Variant* fp32 = OurFp32(ours.threads);
    if (!ours.is_fp32 && fp32 != nullptr) {
      std::fprintf(out_, "%s: %.2f x the time of %s\n", ours.ToString().c_str(),
                   MedianRatio(ours.seconds, fp32->seconds), fp32->ToString().c_str());
    }
  }

  const TrainBenchOptions& options_;
  std::FILE* const out_;
  std::FILE* const notes_;
  const BenchShape shape_;
  BenchBatch batch_;
  const std::unique_ptr<model::Ops> ops_;
  std::vector<std::unique_ptr<BenchStep>> steps_;
  BenchStep* reference_step_ = nullptr;  // in fp32
  StepResult reference_;
  std::unique_ptr<TrainPeer> peer_;
  std::vector<Variant> variants_;
  std::unique_ptr<GemmBaseline> gemm_fp32_, gemm_bf16_;
  std::map<BaselineKey, Samples> baselines_;  // seconds
};

}  // namespace

Status RunTrainBench(const TrainBenchOptions& options, std::FILE* out, std::FILE* notes) {
  const int threads_before = NumThreads();
  const Status status = TrainBench(options, out, notes).Run();
  SetNumThreads(threads_before);
  return status;
}

}  // namespace cria::trainer

#include "trainer/bench/ops_bench.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/parallel.h"
#include "model/cpu/cpu_ops.h"
#include "trainer/bench/bench_step.h"
#include "trainer/bench/cpu_clock.h"
#include "trainer/bench/gemm_baseline.h"
#include "trainer/bench/memory_baseline.h"
#include "trainer/bench/part_bench.h"
#include "trainer/bench/samples.h"
#include "trainer/bench/timing_ops.h"

namespace cria::trainer {
namespace {

// One operation over the rounds.
struct OpRow {
  OpRecord record;  // of one step
  Samples seconds;  // a step
  Samples bound_s;  // the same work at the machine's speed; empty without a bound
};

class OpsBench {
 public:
  OpsBench(const OpsBenchOptions& options, std::FILE* out, std::FILE* notes)
      : options_(options),
        threads_(options.threads > 0 ? options.threads : NumThreads()),
        out_(out),
        notes_(notes),
        shape_(options.tiny ? TinyBenchShape() : DefaultBenchShape()),
        batch_(shape_),
        ops_(model::cpu::NewCpuOps()),
        clock_(options.cpu_time ? &cpu_clock_ : RealClock()),
        timing_(ops_.get(), clock_),
        parts_(shape_, options.precision, ops_.get(), clock_) {}

  Status Run() {
    std::fprintf(notes_, "%s\n%s\n%s, %d thread%s\n", CpuName().c_str(),
                 DescribeShape(shape_).c_str(), model::PrecisionName(options_.precision), threads_,
                 threads_ == 1 ? "" : "s");
    SetNumThreads(threads_);
    BenchStep step(shape_, options_.precision, &timing_, &batch_);
    CRIA_RETURN_IF_ERROR(Verify(&step));
    CRIA_RETURN_IF_ERROR(parts_.Verify());
    step.Run();
    timing_.Reset();
    step.Run();  // only to learn the shapes
    MakeGemms();
    MemoryBaseline memory(clock_);
    for (int round = 0; round < options_.reps; ++round) {
      RunRound(&step, &memory);
      parts_.Round();
    }
    return options_.json ? PrintJson() : PrintTable();
  }

 private:
  Status Verify(BenchStep* step) {
    BenchStep plain(shape_, options_.precision, ops_.get(), &batch_);
    const StepResult want = plain.Gradients();
    const StepResult got = step->Gradients();
    if (want.loss != got.loss || want.grad_norm != got.grad_norm) {
      return InternalError("verify: the timed step has loss ", got.loss, ", gradient norm ",
                           got.grad_norm, "; the plain one ", want.loss, ", ", want.grad_norm);
    }
    std::fprintf(notes_, "verified: loss %.6f, gradient norm %.6f, as without timing\n", got.loss,
                 got.grad_norm);
    return OkStatus();
  }

  void MakeGemms() {
    std::vector<GemmShape> shapes;
    for (const OpRecord& record : timing_.records()) {
      if (!record.gemm) continue;
      gemm_index_[record.name] = shapes.size();
      shapes.push_back(*record.gemm);
      shapes.back().count = record.num_calls;
    }
    gemms_ = std::make_unique<GemmBaseline>(std::move(shapes), clock_);
    gemms_->Run(threads_);
  }

  void RunRound(BenchStep* step, MemoryBaseline* memory) {
    timing_.Reset();
    const double start = clock_->MonotonicSeconds();
    step->Run();
    step_s_.Add(clock_->MonotonicSeconds() - start);
    const std::vector<double> gemm_s = gemms_->Run(threads_);
    double all_gemms_s = 0;
    for (size_t i = 0; i < gemm_s.size(); ++i) {
      all_gemms_s += gemm_s[i] * static_cast<double>(gemms_->shapes()[i].count);
    }
    const double gemm_rate = TotalFlops(gemms_->shapes()) / all_gemms_s;
    const MemoryRates rates = memory->Run(threads_);
    gemm_gflops_.Add(gemm_rate * 1e-9);
    triad_gb_s_.Add(rates.triad);
    copy_gb_s_.Add(rates.copy);
    gemm_step_s_.Add(all_gemms_s);
    for (const OpRecord& record : timing_.records()) {
      OpRow& row = rows_[record.name];
      row.record = record;
      row.seconds.Add(record.seconds);
      if (record.gemm) {
        row.bound_s.Add(gemm_s[gemm_index_[record.name]] * static_cast<double>(record.num_calls));
      } else if (record.flops > 0) {
        row.bound_s.Add(record.flops / gemm_rate);
      } else {
        row.bound_s.Add(record.bytes * 1e-9 / std::max(rates.triad, rates.copy));
      }
    }
  }

  std::vector<const OpRow*> RowsByTime() const {
    std::vector<const OpRow*> rows;
    for (const auto& [name, row] : rows_) rows.push_back(&row);
    std::stable_sort(rows.begin(), rows.end(), [](const OpRow* a, const OpRow* b) {
      return a->seconds.Median() > b->seconds.Median();
    });
    return rows;
  }

  double TokensPerSecond(double seconds) const {
    return static_cast<double>(shape_.tokens()) / seconds;
  }

  Status PrintJson() const {
    Json list = Json::array();
    for (const OpRow* row : RowsByTime()) {
      const double seconds = row->seconds.Median();
      list.push_back({{"impl", "cria"},
                      {"precision", model::PrecisionName(options_.precision)},
                      {"threads", threads_},
                      {"op", row->record.name},
                      {"calls", row->record.num_calls},
                      {"ms_median", 1e3 * seconds},
                      {"ms_best", 1e3 * row->seconds.Best()},
                      {"share", seconds / step_s_.Median()},
                      {"gflops_per_s", 1e-9 * row->record.flops / seconds},
                      {"gb_per_s", 1e-9 * row->record.bytes / seconds},
                      {"bound_fraction", MedianRatio(row->bound_s, row->seconds)},
                      // Of the whole step, in each object.
                      {"tokens_per_s_median", TokensPerSecond(step_s_.Median())},
                      {"tokens_per_s_best", TokensPerSecond(step_s_.Best())},
                      {"gemm_fraction", MedianRatio(gemm_step_s_, step_s_)}});
    }
    for (const PartRow& row : parts_.rows()) {
      list.push_back({{"impl", "cria"},
                      {"threads", threads_},
                      {"part", row.name},
                      {"ms_median", 1e3 * row.seconds.Median()},
                      {"ms_best", 1e3 * row.seconds.Best()},
                      {"gflops_per_s", 1e-9 * row.flops / row.seconds.Median()},
                      {"fraction_of_whole", MedianRatio(row.whole_s, row.seconds)}});
    }
    CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(list, 2));
    std::fprintf(out_, "%s\n", text.c_str());
    return OkStatus();
  }

  Status PrintTable() const {
    const double step_s = step_s_.Median();
    std::fprintf(out_,
                 "step: %.1f ms median, %.1f best, spread %.0f %%; its products at oneDNN's rate: "
                 "%.1f ms, %.1f %%\n"
                 "bounds: oneDNN %.1f GFLOP/s, triad %.1f GB/s, memcpy %.1f GB/s\n\n"
                 "%-38s %6s %9s %9s %7s %16s %9s\n",
                 1e3 * step_s, 1e3 * step_s_.Best(), 100 * step_s_.Spread(),
                 1e3 * gemm_step_s_.Median(), 100 * MedianRatio(gemm_step_s_, step_s_),
                 gemm_gflops_.Median(), triad_gb_s_.Median(), copy_gb_s_.Median(), "operation",
                 "calls", "ms/step", "best", "share", "rate", "of bound");
    double in_ops_s = 0;
    for (const OpRow* row : RowsByTime()) {
      const double seconds = row->seconds.Median();
      in_ops_s += seconds;
      const bool is_flops = row->record.flops > 0;
      const double rate = 1e-9 * (is_flops ? row->record.flops : row->record.bytes) / seconds;
      std::fprintf(out_, "%-38s %6lld %9.2f %9.2f %6.1f%% %8.1f %s %8.0f%%\n",
                   row->record.name.c_str(), static_cast<long long>(row->record.num_calls),
                   1e3 * seconds, 1e3 * row->seconds.Best(), 100 * seconds / step_s, rate,
                   is_flops ? "GFLOP/s" : "GB/s   ", 100 * MedianRatio(row->bound_s, row->seconds));
    }
    std::fprintf(out_, "%-38s %6s %9.2f\n", "between operations", "", 1e3 * (step_s - in_ops_s));
    std::fprintf(out_,
                 "\nof bound: of oneDNN's speed at that shape (attention: at all shapes together), "
                 "or of memory's;\nmore than 100 %% where the operands are still in a cache. "
                 "%d rounds in turns.\n",
                 options_.reps);
    PrintParts();
    return OkStatus();
  }

  void PrintParts() const {
    std::fprintf(out_, "\n%-42s %9s %9s %16s %9s\n", "parts", "ms", "best", "rate", "of whole");
    for (const PartRow& row : parts_.rows()) {
      const double seconds = row.seconds.Median();
      std::fprintf(out_, "%-42s %9.2f %9.2f %8.1f GFLOP/s %8.0f%%\n", row.name.c_str(),
                   1e3 * seconds, 1e3 * row.seconds.Best(), 1e-9 * row.flops / seconds,
                   100 * MedianRatio(row.whole_s, row.seconds));
    }
    std::fprintf(out_, "\nof whole: of the speed in one piece; of a chain: of oneDNN's in fp32.\n");
  }

  const OpsBenchOptions& options_;
  const int threads_;
  std::FILE* const out_;
  std::FILE* const notes_;
  const BenchShape shape_;
  BenchBatch batch_;
  const std::unique_ptr<model::Ops> ops_;
  CpuClock cpu_clock_;
  Clock* const clock_;
  TimingOps timing_;
  PartBench parts_;
  std::unique_ptr<GemmBaseline> gemms_;
  std::map<std::string, size_t> gemm_index_;
  std::map<std::string, OpRow> rows_;
  Samples step_s_, gemm_step_s_, gemm_gflops_, triad_gb_s_, copy_gb_s_;
};

}  // namespace

Status RunOpsBench(const OpsBenchOptions& options, std::FILE* out, std::FILE* notes) {
  const int threads_before = NumThreads();
  const Status status = OpsBench(options, out, notes).Run();
  SetNumThreads(threads_before);
  return status;
}

}  // namespace cria::trainer

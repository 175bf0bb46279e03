#include "trainer/bench/numerics_bench.h"

#include <cstdlib>
#include <memory>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "model/cpu/cpu_ops.h"
#include "trainer/config/train_config.h"
#include "trainer/loop/prepare_job.h"
#include "trainer/loop/train_loop.h"

namespace cria::trainer {
namespace {

struct NumericsRow {
  model::Precision precision;
  double train_loss = 0, val_loss = 0;
  double above_fp32 = 0;  // relative
  double seconds = 0;
};

// A folder that is removed with its runs.
class TemporaryDir {
 public:
  static StatusOr<std::unique_ptr<TemporaryDir>> Create() {
    const char* base = std::getenv("TMPDIR");
    std::string path = JoinPath(base != nullptr ? base : "/tmp", "cria-numerics-XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return ErrnoError(errno, StrCat("make folder ", path));
    return std::make_unique<TemporaryDir>(path);
  }
  explicit TemporaryDir(std::string path) : path_(std::move(path)) {}
  ~TemporaryDir() { (void)RemoveAll(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

StatusOr<NumericsRow> TrainOnce(TrainConfig config, model::Precision precision, const JobData& data,
                                const std::string& out_dir) {
  config.precision = model::PrecisionName(precision);
  config.tensorboard = false;
  config.train.eval_every = 0;  // at the end
  config.checkpoint.every = 0;
  const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  TrainLoop loop(config, {.out_dir = out_dir, .ops = ops.get(), .clock = RealClock()});
  CRIA_RETURN_IF_ERROR(loop.Open(&data.train, &data.val));
  CRIA_ASSIGN_OR_RETURN(const TrainSummary summary, loop.Run());
  if (!summary.val_loss) return InvalidArgumentError(data.dir, ": no validation split");
  return NumericsRow{.precision = precision,
                     .train_loss = summary.last_loss,
                     .val_loss = *summary.val_loss,
                     .seconds = summary.seconds};
}

Status PrintJson(const std::vector<NumericsRow>& rows, int64_t steps, std::FILE* out) {
  Json list = Json::array();
  for (const NumericsRow& row : rows) {
    list.push_back({{"precision", model::PrecisionName(row.precision)},
                    {"steps", steps},
                    {"train_loss", row.train_loss},
                    {"val_loss", row.val_loss},
                    {"above_fp32", row.above_fp32},
                    {"seconds", row.seconds}});
  }
  CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(list, 2));
  std::fprintf(out, "%s\n", text.c_str());
  return OkStatus();
}

}  // namespace

Status RunNumericsBench(const NumericsBenchOptions& options, std::FILE* out, std::FILE* notes) {
  std::vector<std::string> set = options.set;
  set.push_back(StrCat("steps=", options.steps));
  CRIA_ASSIGN_OR_RETURN(const TrainConfig config, LoadTrainConfig(options.config, set));
  CRIA_ASSIGN_OR_RETURN(const JobData data, PrepareJob(config, notes, nullptr));
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryDir> dir, TemporaryDir::Create());
  std::fprintf(notes, "%s; %s, %lld steps of %lld x %lld tokens\n", CpuName().c_str(),
               options.config.c_str(), static_cast<long long>(options.steps),
               static_cast<long long>(config.train.batch),
               static_cast<long long>(config.train.seq));

  std::vector<model::Precision> precisions = {model::Precision::kFp32};
  for (const model::Precision precision : options.precisions) {
    if (precision != model::Precision::kFp32) precisions.push_back(precision);
  }
  std::vector<NumericsRow> rows;
  std::string over;
  for (const model::Precision precision : precisions) {
    const std::string run = JoinPath(dir->path(), model::PrecisionName(precision));
    CRIA_ASSIGN_OR_RETURN(NumericsRow row, TrainOnce(config, precision, data, run));
    const double fp32 = rows.empty() ? row.val_loss : rows[0].val_loss;
    row.above_fp32 = row.val_loss / fp32 - 1;
    if (!(row.above_fp32 <= options.limit)) {  // NaN too
      over += StrCat(over.empty() ? "" : ", ", model::PrecisionName(precision));
    }
    std::fprintf(options.json ? notes : out,
                 "%-15s loss %.4f  validation %.4f  %+6.2f %% of fp32's  %6.1f s\n",
                 model::PrecisionName(precision), row.train_loss, row.val_loss,
                 100 * row.above_fp32, row.seconds);
    std::fflush(options.json ? notes : out);
    rows.push_back(row);
  }
  if (options.json) CRIA_RETURN_IF_ERROR(PrintJson(rows, options.steps, out));
  if (over.empty()) return OkStatus();
  return InternalError("bench numerics: ", over, " ended more than ", 100 * options.limit,
                       " % above fp32's validation loss");
}

}  // namespace cria::trainer

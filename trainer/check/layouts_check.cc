#include "trainer/check/layouts_check.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "comm/engine/world.h"
#include "model/precision.h"
#include "trainer/bench/scratch_folder.h"
#include "trainer/check/layout_list.h"
#include "trainer/check/layouts_rank.h"
#include "trainer/check/layouts_report.h"
#include "trainer/config/train_config.h"
#include "trainer/launch/launch_self.h"
#include "trainer/loop/prepare_job.h"

namespace cria::trainer {
namespace {

using model::Layout;

constexpr char kOutcome[] = "outcome";
constexpr char kHolds[] = "holds";

StatusOr<TrainConfig> LoadConfig(const LayoutsCheckOptions& options) {
  std::vector<std::string> set = options.set;
  if (options.steps > 0) set.push_back(StrCat("steps=", options.steps));
  if (!options.precision.empty()) set.push_back("precision=" + options.precision);
  if (!options.numerics.empty()) set.push_back("numerics=" + options.numerics);
  // The first step's gradients are read from its checkpoint.
  set.insert(set.end(), {"checkpoint.every=1", "checkpoint.keep=0"});
  if (!options.config.empty()) return LoadTrainConfig(options.config, set);
  const auto precision = model::PrecisionFromName(options.precision);
  const bool fp8 = precision && model::IsFp8(*precision);
  return LoadTrainConfig(fp8 ? "layouts_fp8" : "layouts", set);
}

// Those that were named must be allowed; of all, those that are.
StatusOr<std::vector<Layout>> ChooseLayouts(const LayoutsCheckOptions& options,
                                            const TrainConfig& config) {
  if (!options.layouts.empty()) {
    CRIA_ASSIGN_OR_RETURN(std::vector<Layout> layouts, ParseLayouts(options.layouts));
    for (const Layout& layout : layouts) {
      CRIA_RETURN_IF_ERROR(
          Annotate(ResolveLayout(WithLayout(config, layout), layout.world_size()).status(),
                   FormatLayout(layout)));
    }
    return layouts;
  }
  std::vector<Layout> layouts = AllLayouts(config.model, config.train.seq, options.ranks);
  std::erase_if(layouts, [&config](const Layout& layout) {
    return !ResolveLayout(WithLayout(config, layout), layout.world_size()).ok();
  });
  if (layouts.empty()) return InvalidArgumentError("the job allows no layout of these ranks");
  return layouts;
}

// The command itself: starts the ranks and hears from rank 0 whether all holds.
Status Start(const LayoutsCheckOptions& options, std::vector<std::string> arguments, bool* holds) {
  CRIA_ASSIGN_OR_RETURN(const TrainConfig config, LoadConfig(options));
  CRIA_ASSIGN_OR_RETURN(const std::vector<Layout> layouts, ChooseLayouts(options, config));
  CRIA_ASSIGN_OR_RETURN(const JobData data, PrepareJob(config, stderr, nullptr));
  CRIA_ASSIGN_OR_RETURN(const auto folder, ScratchFolder::Create());
  // Prepared once, not by each rank.
  for (const std::string& more :
       {std::string("--set"), "data.path=" + data.dir, std::string("--folder"), folder->File("")}) {
    arguments.push_back(more);
  }
  int ranks = 1;
  for (const Layout& layout : layouts) ranks = std::max(ranks, layout.world_size());
  CRIA_RETURN_IF_ERROR(LaunchSelf(arguments, ranks));
  CRIA_ASSIGN_OR_RETURN(const std::string outcome, ReadFile(folder->File(kOutcome)));
  *holds = outcome == kHolds;
  return OkStatus();
}

// A rank of it.
Status RunRank(const LayoutsCheckOptions& options, std::FILE* out, std::FILE* notes) {
  LayoutsRankJob job;
  CRIA_ASSIGN_OR_RETURN(job.config, LoadConfig(options));
  CRIA_ASSIGN_OR_RETURN(job.layouts, ChooseLayouts(options, job.config));
  job.folder = options.folder;
  CRIA_ASSIGN_OR_RETURN(const comm::WorldOptions world_options,
                        comm::ReadWorldOptions(comm::ProcessEnvironment()));
  CRIA_ASSIGN_OR_RETURN(const auto world, comm::JoinWorld(world_options));
  const auto print = [notes](const std::string& line) {
    std::fprintf(notes, "%s\n", line.c_str());
    std::fflush(notes);
  };
  const bool reports = world->rank() == 0;
  if (reports) print(RowsHeader());
  std::vector<LayoutRow> rows;
  CRIA_RETURN_IF_ERROR(RunLayoutsRank(
      job, world.get(), [&print](const LayoutRow& row) { print(FormatRow(row)); }, &rows));
  if (!reports) return OkStatus();
  const LayoutLimits limits = LimitsOf(job.config.Precision(), job.config.invariant());
  print(FormatSummary(rows, limits));
  if (options.json) {
    CRIA_ASSIGN_OR_RETURN(const std::string text, FormatJson(rows, limits));
    std::fprintf(out, "%s\n", text.c_str());
  }
  const bool holds =
      std::all_of(rows.begin(), rows.end(), [](const LayoutRow& row) { return row.ok(); });
  return WriteFileAtomic(JoinPath(options.folder, kOutcome), holds ? kHolds : "does not hold");
}

}  // namespace

int RunLayoutsCheck(const LayoutsCheckOptions& options, const std::vector<std::string>& arguments,
                    std::FILE* out, std::FILE* notes) {
  bool holds = true;
  const Status status =
      options.folder.empty() ? Start(options, arguments, &holds) : RunRank(options, out, notes);
  if (!status.ok()) std::fprintf(stderr, "cria check layouts: %s\n", Message(status).c_str());
  if (!status.ok()) return ExitCode(status);
  return holds ? 0 : 1;
}

}  // namespace cria::trainer

#include "trainer/check/layouts_rank.h"

#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "comm/api/error.h"
#include "model/cpu/cpu_ops.h"
#include "model/parallel/groups.h"
#include "trainer/check/layout_list.h"
#include "trainer/check/layouts_evidence.h"
#include "trainer/check/layouts_record.h"
#include "trainer/data/token_dataset.h"
#include "trainer/loop/agreement.h"
#include "trainer/loop/train_loop.h"

namespace cria::trainer {
namespace {

using model::Layout;

// A layout whose ranks wait for one another for longer hangs. The world's own operations wait for
// a whole layout, so their time is longer.
constexpr double kLayoutTimeoutSeconds = 60;
constexpr double kWorldTimeoutSeconds = 600;

class LayoutsRank {
 public:
  LayoutsRank(const LayoutsRankJob& job, comm::Communicator* world)
      : job_(job), world_(world), ops_(model::cpu::NewCpuOps()) {
    world_->SetTimeout(kWorldTimeoutSeconds);
  }

  Status Open() {
    CRIA_ASSIGN_OR_RETURN(train_, OpenSplit("train"));
    CRIA_ASSIGN_OR_RETURN(val_, OpenSplit("val"));
    Status status = OkStatus();
    if (world_->rank() == 0) {
      status = Annotate(Train({}, nullptr, &one_rank_), "one rank");
      if (status.ok()) status = ReadRecord({}, &reference_);
    }
    CRIA_ASSIGN_OR_RETURN(const std::string problem, FirstProblem(status));
    return problem.empty() ? OkStatus() : InternalError(problem);
  }

  // The row is rank 0's.
  StatusOr<LayoutRow> Run(const Layout& layout) {
    LayoutRow row = {.layout = layout};
    const double start_s = RealClock()->MonotonicSeconds();
    std::vector<std::vector<StepEvidence>> evidence;
    const Status status =
        world_->rank() < layout.world_size() ? TakePart(layout, &evidence) : OkStatus();
    CRIA_ASSIGN_OR_RETURN(row.problem, FirstProblem(status));
    row.seconds = RealClock()->MonotonicSeconds() - start_s;
    if (world_->rank() == 0) Judge(evidence, &row);
    return row;
  }

 private:
  StatusOr<std::unique_ptr<TokenDataset>> OpenSplit(const char* split) const {
    CRIA_ASSIGN_OR_RETURN(TokenDataset dataset, TokenDataset::Open(job_.config.data.path, split));
    return std::make_unique<TokenDataset>(std::move(dataset));
  }

  std::string OutDir(const Layout& layout) const {
    return JoinPath(job_.folder, FormatLayout(layout));
  }

  // A run from the first step to the last. `group` null: alone.
  Status Train(const Layout& layout, comm::Communicator* group, LayoutEvidence* evidence) const {
    std::optional<model::Groups> groups;
    if (group != nullptr) {
      CRIA_ASSIGN_OR_RETURN(groups, model::MakeGroups(layout, job_.config.model, group));
    }
    TrainLoop loop(WithLayout(job_.config, layout), {.out_dir = OutDir(layout),
                                                     .ops = ops_.get(),
                                                     .clock = RealClock(),
                                                     .groups = groups ? &*groups : nullptr,
                                                     .watcher = evidence});
    CRIA_RETURN_IF_ERROR(loop.Open(train_.get(), val_.get()));
    return loop.Run().status();
  }

  Status TakePart(const Layout& layout, std::vector<std::vector<StepEvidence>>* evidence) const {
    std::vector<int> ranks(static_cast<size_t>(layout.world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    CRIA_ASSIGN_OR_RETURN(const auto group,
                          world_->NewGroup({.ranks = std::move(ranks), .name = "layout"}));
    group->SetTimeout(kLayoutTimeoutSeconds);
    LayoutEvidence mine;
    const Status status = Train(layout, group.get(), &mine);
    if (!status.ok()) {
      // The others don't wait for a rank that has given up.
      group->Abort(StrCat("rank ", group->rank(), " failed: ", Message(status)));
      return status;
    }
    CRIA_ASSIGN_OR_RETURN(*evidence, GatherEvidence(mine.steps(), group.get()));
    return OkStatus();
  }

  // What a rank found by itself before what it heard of another's failure; the same on all ranks.
  StatusOr<std::string> FirstProblem(const Status& status) const {
    const Agreement agreement(world_);
    const bool heard = comm::GetCommError(status).has_value();
    CRIA_ASSIGN_OR_RETURN(const auto own, agreement.First(heard ? "" : Message(status)));
    CRIA_ASSIGN_OR_RETURN(const auto any, agreement.First(Message(status)));
    const Agreement::FirstText& first = own.text.empty() ? any : own;
    return first.text.empty() ? "" : StrCat("rank ", first.rank, ": ", first.text);
  }

  Status ReadRecord(const Layout& layout, RunRecord* record) const {
    CRIA_ASSIGN_OR_RETURN(*record, ReadRunRecord(OutDir(layout), job_.config.steps));
    return RemoveAll(OutDir(layout));
  }

  void Judge(const std::vector<std::vector<StepEvidence>>& evidence, LayoutRow* row) const {
    if (row->ok()) row->problem = JudgeTokens(row->layout, evidence, one_rank_.steps());
    if (row->ok()) row->problem = JudgeReplicas(job_.config.model, evidence);
    RunRecord record;
    const Status status = ReadRecord(row->layout, &record);
    if (status.ok()) row->difference = Compare(record, reference_);
    if (row->ok() && !status.ok()) row->problem = Message(status);
    if (row->ok()) {
      row->problem = JudgeDifference(row->difference,
                                     LimitsOf(job_.config.Precision(), job_.config.invariant()));
    }
  }

  const LayoutsRankJob& job_;
  comm::Communicator* const world_;
  const std::unique_ptr<model::Ops> ops_;
  std::unique_ptr<TokenDataset> train_, val_;
  // Of rank 0.
  LayoutEvidence one_rank_;
  RunRecord reference_;
};

}  // namespace

TrainConfig WithLayout(const TrainConfig& config, const Layout& layout) {
  TrainConfig with = config;
  with.parallel.tp = layout.tp;
  with.parallel.cp = layout.cp;
  with.parallel.pp = layout.pp;
  with.parallel.dp = layout.dp;
  with.parallel.shard = Name(layout.shard);
  with.parallel.pp_chunks = layout.pp_chunks;
  with.parallel.pp_group = layout.pp_group;
  with.parallel.pp_short_ends = layout.pp_short_ends;
  return with;
}

Status RunLayoutsRank(const LayoutsRankJob& job, comm::Communicator* world,
                      const std::function<void(const LayoutRow&)>& on_row,
                      std::vector<LayoutRow>* rows) {
  LayoutsRank rank(job, world);
  CRIA_RETURN_IF_ERROR(rank.Open());
  for (const Layout& layout : job.layouts) {
    CRIA_ASSIGN_OR_RETURN(LayoutRow row, rank.Run(layout));
    if (world->rank() != 0) continue;
    on_row(row);
    rows->push_back(std::move(row));
  }
  return OkStatus();
}

}  // namespace cria::trainer

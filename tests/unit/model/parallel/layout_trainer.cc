#include "tests/unit/model/parallel/layout_trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "model/cpu/cpu_ops.h"
#include "model/parallel/context_parallel.h"
#include "model/parallel/groups.h"
#include "tests/support/comm_ranks.h"
#include "tests/unit/model/parallel/every_rank.h"
#include "trainer/optimizer/adamw.h"

namespace cria::model {
namespace {

// Sequences of the global batch as this rank has them, their rows in the order of its chunks.
OwnedBatch RowsOf(const OwnedBatch& whole, const Layout& layout, int cp_rank) {
  OwnedBatch own;
  own.batch = whole.batch;
  own.time = whole.time;
  for (const ContextSpan& span : SpansOf(layout.cp, cp_rank, whole.batch, whole.time)) {
    for (int64_t b = 0; b < whole.batch; ++b) {
      const int64_t begin = b * whole.time + span.first, end = begin + span.time;
      const auto take = [&](const std::vector<int32_t>& from, std::vector<int32_t>* to) {
        to->insert(to->end(), from.begin() + begin, from.begin() + end);
      };
      take(whole.tokens, &own.tokens);
      take(whole.targets, &own.targets);
      take(whole.positions, &own.positions);
      take(whole.doc_start, &own.doc_start);
    }
  }
  return own;
}

// Losses are this rank's parts; weights those that it keeps.
class RankTrainer {
 public:
  RankTrainer(const LayoutJob& job, const Layout& layout, const Groups* groups)
      : job_(job),
        layout_(layout),
        groups_(groups),
        rank_(groups == nullptr ? 0 : groups->world->rank()),
        at_(CoordinatesOf(layout, rank_)),
        first_(job.batch_of(0)),
        ops_(cpu::NewCpuOps()),
        model_(job.config,
               {.layout = layout,
                .rank = rank_,
                .precision = job.precision,
                .recompute = job.recompute,
                .max_batch = job.micro_batch,
                .max_time = first_.time,
                .slots = SlotsOf(layout, rank_, num_micro_batches()),
                .fp8_gather = job.fp8_gather && layout.world_size() > 1,
                .token_grain = job.invariant ? 2 : 0},
               ops_.get(), groups),
        optimizer_(model_.parameters(), {}, ops_.get()) {
    model_.parameters()->Initialize(/*seed=*/5);
  }

  LayoutOutcome Run() {
    LayoutOutcome outcome;
    for (int step = 0; step < job_.steps; ++step) Step(step, &outcome);
    for (const Parameter& parameter : model_.layout().parameters()) {
      const ParameterBuffers::Kept kept = model_.parameters()->KeptOf(parameter);
      for (int64_t i = 0; i < kept.values.num_elements(); ++i) {
        outcome.weights[parameter.name][LogicalElement(parameter, kept.begin + i)] =
            kept.values.f32()[i];
      }
    }
    return outcome;
  }

 private:
  int64_t share() const { return first_.batch / layout_.dp; }
  int num_micro_batches() const { return static_cast<int>(share() / job_.micro_batch); }

  void Step(int step, LayoutOutcome* outcome) {
    const OwnedBatch global = job_.batch_of(step);
    std::vector<OwnedBatch> owned;
    for (int64_t i = at_.dp * share(); i < (at_.dp + 1) * share(); i += job_.micro_batch) {
      owned.push_back(RowsOf(global.Sequences(i, i + job_.micro_batch), layout_, at_.cp));
    }
    std::vector<TokenBatch> batches;
    for (const OwnedBatch& batch : owned) batches.push_back(batch.view());
    LossSum loss;
    model_.ZeroGradients();
    const float scale = 1.0f / static_cast<float>(global.num_valid());
    ASSERT_TRUE(model_.Train(batches, scale, &loss).ok());
    ASSERT_TRUE(model_.parameters()->FinishGradients().ok());
    const auto norm = optimizer_.Norm();
    ASSERT_TRUE(norm.ok() && norm->finite());
    // Steps that are small beside the weights, as in training: Adam turns the rounding errors of
    // small gradients into whole steps.
    optimizer_.Step(/*lr=*/3e-5, norm->value);
    ASSERT_TRUE(model_.parameters()->GatherWeights().ok());
    const bool skipped = false;
    ASSERT_TRUE(model_.linears()
                    ->EndStep(skipped, groups_ == nullptr ? nullptr : groups_->stage.get())
                    .ok());
    outcome->losses.push_back(at_.tp == 0 ? loss.sum : 0);
    outcome->norms.push_back(norm->value);
  }

  const LayoutJob& job_;
  const Layout layout_;
  const Groups* const groups_;
  const int rank_;
  const Coordinates at_;
  const OwnedBatch first_;
  const std::unique_ptr<Ops> ops_;
  Llama model_;
  trainer::AdamW optimizer_;
};

LayoutOutcome Merge(const std::vector<LayoutOutcome>& ranks) {
  LayoutOutcome all = {.losses = std::vector<double>(ranks[0].losses.size()),
                       .norms = ranks[0].norms};
  for (const LayoutOutcome& rank : ranks) {
    for (size_t step = 0; step < rank.losses.size(); ++step) all.losses[step] += rank.losses[step];
    for (const auto& [name, values] : rank.weights) {
      for (const auto& [i, value] : values) {
        const auto [at, is_new] = all.weights[name].emplace(i, value);
        EXPECT_TRUE(is_new || at->second == value) << "ranks differ in " << name << " " << i;
      }
    }
  }
  return all;
}

}  // namespace

LayoutOutcome TrainAlone(const LayoutJob& job) { return RankTrainer(job, {}, nullptr).Run(); }

LayoutOutcome TrainOnRanks(const LayoutJob& job) {
  std::vector<LayoutOutcome> ranks(static_cast<size_t>(job.layout.world_size()));
  RunRankThreads({.ranks = job.layout.world_size()}, [&](comm::Communicator& world) {
    const StatusOr<Groups> groups = MakeGroups(job.layout, job.config, &world);
    ASSERT_TRUE(groups.ok()) << groups.status();
    ranks[static_cast<size_t>(world.rank())] = RankTrainer(job, job.layout, &*groups).Run();
  });
  const LayoutOutcome all = Merge(ranks);
  const ParameterLayout whole(job.config);
  for (const Parameter& parameter : whole.parameters()) {
    const auto found = all.weights.find(parameter.name);
    const size_t count = found == all.weights.end() ? 0 : found->second.size();
    EXPECT_EQ(count, static_cast<size_t>(parameter.num_elements())) << parameter.name;
  }
  return all;
}

double Difference(const LayoutWeights& got, const LayoutWeights& want) {
  double squares = 0, differences = 0;
  for (const auto& [name, values] : want) {
    for (const auto& [i, value] : values) {
      squares += static_cast<double>(value) * value;
      const double difference = static_cast<double>(got.at(name).at(i)) - value;
      differences += difference * difference;
    }
  }
  return std::sqrt(differences / squares);
}

}  // namespace cria::model

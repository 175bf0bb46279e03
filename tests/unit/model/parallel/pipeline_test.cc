// A model over the stages of a pipeline does to each number what it does on one rank: losses and
// gradients have the same bits.

#include "model/parallel/pipeline.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/llama.h"
#include "model/parallel/groups.h"
#include "tests/support/comm_ranks.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

constexpr int64_t kTime = 16;

struct Case {
  Layout layout;
  int micro_batches = 1;
  int64_t layers = 4;
  bool tied = false;
  Recompute recompute = Recompute::kNone;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << Name(c.layout) << ", " << c.micro_batches << " micro-batches, " << c.layers << " layers";
}

LlamaConfig ConfigOf(const Case& c) {
  LlamaConfig config = TinyConfig();
  config.layers = c.layers;
  config.tied_head = c.tied;
  return config;
}

struct Result {
  LossSum loss, evaluated;
  std::map<std::string, std::vector<float>> gradients;
};

// One training pass and one evaluation over the case's micro-batches, which are of one or two
// sequences.
Result TrainOn(const Case& c, const Layout& layout, int rank, const Groups* groups) {
  const LlamaConfig config = ConfigOf(c);
  const std::unique_ptr<Ops> ops = cpu::NewCpuOps();
  Llama model(config,
              {.layout = layout,
               .rank = rank,
               .recompute = c.recompute,
               .max_batch = 2,
               .max_time = kTime,
               .slots = SlotsOf(layout, rank, c.micro_batches)},
              ops.get(), groups);
  model.parameters()->Initialize(/*seed=*/3);
  model.WeightsChanged();
  std::vector<OwnedBatch> owned;
  for (int i = 0; i < c.micro_batches; ++i) {
    owned.push_back(RandomBatch(config, 1 + i % 2, kTime, static_cast<uint64_t>(40 + i),
                                /*document=*/7, /*masked=*/5));
  }
  std::vector<TokenBatch> batches;
  for (const OwnedBatch& batch : owned) batches.push_back(batch.view());

  Result result;
  model.ZeroGradients();
  Status status = model.Train(batches, /*grad_scale=*/0.01f, &result.loss);
  CRIA_CHECK(status.ok(), Message(status));
  status = model.parameters()->FinishGradients();
  CRIA_CHECK(status.ok(), Message(status));
  status = model.Evaluate(batches, &result.evaluated);
  CRIA_CHECK(status.ok(), Message(status));
  for (const Parameter& p : model.layout().parameters()) {
    const float* values = model.gradients().f32() + p.offset;
    result.gradients[p.name].assign(values, values + p.num_elements());
  }
  return result;
}

class PipelineTest : public testing::TestWithParam<Case> {};

TEST_P(PipelineTest, GivesWhatOneRankGives) {
  const Case& c = GetParam();
  const Result alone = TrainOn(c, Layout{}, 0, nullptr);
  RunRankThreads({.ranks = c.layout.world_size()}, [&](comm::Communicator& world) {
    StatusOr<Groups> groups = MakeGroups(c.layout, ConfigOf(c), &world);
    ASSERT_TRUE(groups.ok()) << groups.status();
    const Result part = TrainOn(c, c.layout, world.rank(), &*groups);
    const bool last = groups->at.pp + 1 == c.layout.pp;
    EXPECT_EQ(part.loss.sum, last ? alone.loss.sum : 0);
    EXPECT_EQ(part.loss.num_valid, last ? alone.loss.num_valid : 0);
    EXPECT_EQ(part.evaluated.sum, last ? alone.evaluated.sum : 0);
    for (const auto& [name, gradient] : part.gradients) {
      const std::vector<float>& want = alone.gradients.at(name);
      // The two uses of a tied matrix are added up on two stages, each for itself.
      if (c.tied && name == "model.embed_tokens.weight") {
        EXPECT_LT(RelativeError(gradient, want), 1e-6) << name;
      } else {
        EXPECT_EQ(gradient, want) << name;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, PipelineTest,
    testing::Values(Case{.layout = {.pp = 2}, .micro_batches = 1},
                    Case{.layout = {.pp = 2}, .micro_batches = 5, .tied = true},
                    Case{.layout = {.pp = 4}, .micro_batches = 3, .recompute = Recompute::kFull},
                    Case{.layout = {.pp = 3}, .micro_batches = 7, .layers = 5},
                    Case{.layout = {.pp = 2, .pp_chunks = 2}, .micro_batches = 4},
                    // More than what one rank takes ahead of another: breadth-first.
                    Case{.layout = {.pp = 2, .pp_chunks = 2, .pp_group = 10},
                         .micro_batches = 20,
                         .recompute = Recompute::kSelective},
                    Case{.layout = {.pp = 2, .pp_chunks = 2, .pp_group = 3},
                         .micro_batches = 10,
                         .layers = 7,
                         .tied = true},
                    Case{.layout = {.pp = 3, .pp_chunks = 2}, .micro_batches = 2, .layers = 6},
                    // Embedding and head alone in the first and the last chunk.
                    Case{.layout = {.pp = 2, .pp_chunks = 3, .pp_short_ends = true},
                         .micro_batches = 5,
                         .layers = 4},
                    Case{.layout = {.pp = 4, .pp_short_ends = true},
                         .micro_batches = 6,
                         .layers = 2,
                         .tied = true}));

}  // namespace
}  // namespace cria::model

// Runs of several ranks: the log of one rank, and checkpoints that any layout goes on from.

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/parallel/groups.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/config/train_config.h"

namespace cria::trainer {
namespace {

using model::Layout;
using model::Shard;

// Runs the job on the layout's ranks; what rank 0 saw.
TinyOutcome RunOn(const Layout& layout, const TrainConfig& config, const TinyOptions& options) {
  if (layout.world_size() == 1) return RunTiny(config, options);
  TinyOutcome first;
  RunRankThreads({.ranks = layout.world_size()}, [&](comm::Communicator& world) {
    const StatusOr<model::Groups> groups = model::MakeGroups(layout, config.model, &world);
    ASSERT_TRUE(groups.ok()) << groups.status();
    TinyOptions mine = options;
    mine.groups = &*groups;
    TinyOutcome outcome = RunTiny(config, mine);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    if (world.rank() == 0) first = std::move(outcome);
  });
  return first;
}

TrainConfig ConfigOf(const std::string& numerics) {
  TrainConfig config = TinyConfig(TinyData());
  config.numerics = numerics;
  config.steps = 4;
  config.checkpoint.every = 2;
  config.train.eval_every = 2;
  return config;
}

std::vector<double> ColumnOf(const std::vector<std::string>& lines, const std::string& key) {
  std::vector<double> values;
  for (const std::string& line : lines) {
    const StatusOr<Json> json = ParseJson(line, "metrics.jsonl");
    if (json.ok() && json->contains(key)) values.push_back((*json)[key].get<double>());
  }
  return values;
}

// Uneven shares of the batch, empty shards, every kind of group.
std::vector<Layout> Layouts() {
  return {{},
          {.dp = 3, .shard = Shard::kWeights},
          {.tp = 2, .dp = 2, .shard = Shard::kGradients},
          {.cp = 2, .pp = 2},
          {.tp = 2, .pp = 2, .dp = 2, .shard = Shard::kOptimizer}};
}

TEST(TrainLayoutsTest, LogsWhatOneRankLogs) {
  const TrainConfig config = ConfigOf("default");
  const TinyOutcome alone = RunTiny(config, {.out_dir = FreshDir("alone")});
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(Name(layout));
    const TinyOutcome outcome = RunOn(layout, config, {.out_dir = FreshDir("many")});
    for (const char* key : {"loss", "grad_norm", "val_loss"}) {
      const std::vector<double> want = ColumnOf(alone.metrics, key);
      const std::vector<double> got = ColumnOf(outcome.metrics, key);
      ASSERT_EQ(got.size(), want.size()) << key;
      ASSERT_FALSE(want.empty());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i] / want[i], 1, 1e-6) << key << i;
    }
  }
}

TEST(TrainLayoutsTest, EachLayoutGoesOnFromTheCheckpointOfEachOther) {
  const TrainConfig config = ConfigOf("invariant");
  const TinyOutcome alone = RunTiny(config, {.out_dir = FreshDir("alone")});
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  for (const Layout& from : Layouts()) {
    const std::string first = FreshDir("first");
    const TinyOutcome saved = RunOn(from, config, {.out_dir = first});
    EXPECT_EQ(saved.metrics, alone.metrics) << Name(from);
    EXPECT_EQ(saved.last, alone.last) << Name(from);
    for (const Layout& to : Layouts()) {
      SCOPED_TRACE(Name(from) + " to " + Name(to));
      const TinyOutcome resumed =
          RunOn(to, config, {.out_dir = FreshDir("second"), .resume = StepDir(first, 2)});
      EXPECT_EQ(resumed.summary.steps, 2);
      // The same bytes of weights, moments and all.
      EXPECT_EQ(resumed.last, alone.last);
    }
  }
}

}  // namespace
}  // namespace cria::trainer

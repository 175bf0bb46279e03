// A state whose every number says which it is, saved on one layout and restored on others. All
// layouts write the same bytes, so that each pair of them is tried by trying each once.

#include "trainer/loop/train_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "model/cpu/cpu_ops.h"
#include "model/parallel/groups.h"
#include "tests/support/comm_ranks.h"
#include "tests/unit/model/parallel/every_rank.h"
#include "tests/unit/trainer/checkpoint/checkpoint_fixture.h"

namespace cria::trainer {
namespace {

using model::Layout;
using model::Shard;

model::LlamaConfig Config(bool tied) {
  return {.layers = 4,
          .dim = 8,
          .heads = 4,
          .kv_heads = 2,
          .ffn = 12,
          .vocab = 11,
          .max_positions = 32,
          .rope_scaling = {},
          .tied_head = tied};
}

const Cursor kCursor = {
    .step = 7, .samples = 70, .tokens = 700, .bad_steps_in_row = 1, .data_fingerprint = 12345};

float Value(const std::string& buffer, int64_t index, int64_t element) {
  return static_cast<float>(Hash64(StrCat(buffer, " ", index, " ", element)) >> 40);
}

// Calls `visit(number, what it should be)` for each number of a buffer of such parts.
template <typename Visit>
void ForEachNumber(const std::string& name, const model::ParameterLayout& layout,
                   const model::BlockParts& parts, const model::Tensor& values, Visit visit) {
  for (int b = 0; b < parts.num_blocks(); ++b) {
    const model::BlockPart& part = parts.block(b);
    for (const model::Parameter& p : layout.parameters()) {
      const int64_t end = std::min(part.end, p.offset + p.num_elements());
      for (int64_t i = std::max(part.begin, p.offset); i < end; ++i) {
        visit(values.f32()[part.at + i - part.begin],
              Value(name, p.index, LogicalElement(p, i - p.offset)));
      }
    }
  }
}

class Rank {
 public:
  Rank(const Layout& layout, const model::LlamaConfig& config, comm::Communicator* world) {
    if (world != nullptr) groups_ = *model::MakeGroups(layout, config, world);
    model_.emplace(config,
                   model::LlamaOptions{.layout = layout,
                                       .rank = world == nullptr ? 0 : world->rank(),
                                       .precision = model::Precision::kFp8Delayed,
                                       .max_time = 16},
                   ops_.get(), world == nullptr ? nullptr : &*groups_);
    optimizer_.emplace(model_->parameters(), AdamWOptions{}, ops_.get());
  }

  model::Llama& model() { return *model_; }

  void Fill() {
    const auto set = [](float& x, float value) { x = value; };
    const model::ParameterParts& parts = model_->parameters()->parts();
    ForEachNumber("w", model_->layout(), parts.weights(), model_->weights(), set);
    ForEachNumber("m", model_->layout(), parts.updated(), optimizer_->m(), set);
    ForEachNumber("v", model_->layout(), parts.updated(), optimizer_->v(), set);
    std::vector<model::NamedFloats> arrays = model_->linears()->SaveState();
    for (model::NamedFloats& array : arrays) SetFp8(&array);
    ASSERT_TRUE(model_->linears()->LoadState(arrays).ok());
    model_->WeightsChanged();
    optimizer_->set_num_steps(6);
  }

  Status Save(const std::string& dir) {
    return SaveTrainState(dir, kCursor, 42, "yaml", &*model_, *optimizer_);
  }

  StatusOr<Cursor> Restore(const std::string& dir) {
    comm::Communicator* world = groups_ ? groups_->world : nullptr;
    CRIA_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, LoadCheckpoint(dir, world));
    return RestoreTrainState(loaded, &*model_, &*optimizer_);
  }

  void ExpectFilled() {
    int64_t count = 0;
    const auto expect = [&](float x, float value) {
      EXPECT_EQ(x, value);
      ++count;
    };
    const model::ParameterParts& parts = model_->parameters()->parts();
    ForEachNumber("w", model_->layout(), parts.weights(), model_->weights(), expect);
    ForEachNumber("m", model_->layout(), parts.updated(), optimizer_->m(), expect);
    ForEachNumber("v", model_->layout(), parts.updated(), optimizer_->v(), expect);
    EXPECT_GE(count, model_->layout().blocks().back().size());
    for (const model::NamedFloats& array : model_->linears()->SaveState()) {
      model::NamedFloats wanted = array;
      SetFp8(&wanted);
      EXPECT_EQ(array.values, wanted.values) << array.name;
    }
    EXPECT_EQ(optimizer_->num_steps(), 6);
  }

 private:
  static void SetFp8(model::NamedFloats* array) {
    for (size_t i = 0; i < array->values.size(); ++i) {
      array->values[i] = 1 + Value(array->name, 0, static_cast<int64_t>(i));
    }
  }

  const std::unique_ptr<model::Ops> ops_ = model::cpu::NewCpuOps();
  std::optional<model::Groups> groups_;
  std::optional<model::Llama> model_;
  std::optional<AdamW> optimizer_;
};

std::map<std::string, std::string> FilesOf(const std::string& dir) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = *ListDir(dir);
  for (const std::string& name : names) files[name] = *ReadFile(JoinPath(dir, name));
  return files;
}

// Every way to cut, alone and together; with 5 and 7 replicas blocks divide unevenly.
std::vector<Layout> Layouts() {
  const std::vector<Layout> shapes = {{.dp = 2},
                                      {.dp = 5},
                                      {.cp = 2},
                                      {.tp = 2},
                                      {.tp = 4},
                                      {.pp = 2},
                                      {.pp = 3},
                                      {.tp = 4, .dp = 2},
                                      {.pp = 2, .dp = 3},
                                      {.tp = 2, .cp = 2},
                                      {.cp = 2, .pp = 2},
                                      {.tp = 2, .pp = 2, .dp = 2},
                                      {.pp = 2, .pp_chunks = 2}};
  std::vector<Layout> layouts;
  for (Layout layout : shapes) {
    for (const Shard shard :
         {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kWeights}) {
      if (layout.replicas() == 1 && shard != Shard::kNone) continue;
      layout.shard = shard;
      layouts.push_back(layout);
    }
  }
  return layouts;
}

class TrainStateTest : public testing::TestWithParam<bool> {
 protected:
  // What one rank saves.
  std::string SavedByOne() {
    const std::string dir = FreshFolder("one");
    Rank one({}, Config(GetParam()), nullptr);
    one.Fill();
    EXPECT_TRUE(one.Save(dir).ok());
    return CheckpointDir(dir, kCursor.step);
  }
};

TEST_P(TrainStateTest, EveryLayoutSavesTheBytesOfOneRank) {
  const std::map<std::string, std::string> want = FilesOf(SavedByOne());
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(Name(layout));
    const std::string dir = FreshFolder("many");
    RunRankThreads({.ranks = layout.world_size()}, [&](comm::Communicator& world) {
      Rank rank(layout, Config(GetParam()), &world);
      rank.Fill();
      const Status saved = rank.Save(dir);
      EXPECT_TRUE(saved.ok()) << saved;
    });
    const std::map<std::string, std::string> got = FilesOf(CheckpointDir(dir, kCursor.step));
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, bytes] : want) EXPECT_TRUE(got.at(name) == bytes) << name;
  }
}

TEST_P(TrainStateTest, EveryLayoutRestoresEachOfItsNumbers) {
  const std::string dir = SavedByOne();
  std::vector<Layout> layouts = Layouts();
  layouts.push_back({});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(Name(layout));
    RunRankThreads({.ranks = layout.world_size()}, [&](comm::Communicator& world) {
      Rank rank(layout, Config(GetParam()), &world);
      const StatusOr<Cursor> cursor = rank.Restore(dir);
      ASSERT_TRUE(cursor.ok()) << cursor.status();
      rank.ExpectFilled();
      EXPECT_EQ(cursor->step, kCursor.step);
      EXPECT_EQ(cursor->samples, kCursor.samples);
      EXPECT_EQ(cursor->tokens, kCursor.tokens);
      EXPECT_EQ(cursor->bad_steps_in_row, kCursor.bad_steps_in_row);
      EXPECT_EQ(cursor->data_fingerprint, kCursor.data_fingerprint);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, TrainStateTest, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Tied") : std::string("Untied");
});

TEST(TrainStateErrorTest, AnotherModelIsRefusedByAllRanks) {
  const std::string dir = FreshFolder("other");
  Rank one({}, Config(false), nullptr);
  one.Fill();
  ASSERT_TRUE(one.Save(dir).ok());
  const std::string checkpoint = CheckpointDir(dir, kCursor.step);
  const Layout layout = {.pp = 2, .dp = 2, .shard = Shard::kWeights};
  const auto refused = [&](const model::LlamaConfig& config, const std::string& what) {
    RunRankThreads({.ranks = layout.world_size()}, [&](comm::Communicator& world) {
      Rank rank(layout, config, &world);
      rank.Fill();
      const Status restored = rank.Restore(checkpoint).status();
      EXPECT_NE(Message(restored).find(what), std::string::npos) << restored;
    });
  };
  refused(Config(true), "1 unknown (lm_head.weight)");
  model::LlamaConfig config = Config(false);
  config.layers = 5;
  refused(config, "9 missing (model.layers.4.");
  config = Config(false);
  config.ffn = 16;
  refused(config, "expected F32 [");
}

}  // namespace
}  // namespace cria::trainer

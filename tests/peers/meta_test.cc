// Meta's layout as PyTorch itself saves it: one shard, two, the embedding cut either way.

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/peers/peer_python.h"
#include "tests/support/process.h"
#include "tests/unit/trainer/models/gguf_random_model.h"
#include "trainer/models/hf_writer.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

TEST(MetaPeerTest, CheckpointsOfTorchSaveGiveTheWeightsTheyWereMadeOf) {
  for (const model::StDtype dtype : {model::StDtype::kBF16, model::StDtype::kF32}) {
    model::LlamaConfig config = SmallConfig();
    config.rope_scaling.original_max_positions = 8192;
    config.max_positions = 131072;
    ModelFiles source = RandomModel(config, dtype);
    source.format = ModelFormat::kRun;
    const std::string dir = FreshDir("meta"), folder = JoinPath(dir, "hf");
    ASSERT_TRUE(WriteHfModel(source, folder, {}).ok());
    const auto out = RunPeer("tests/peers/meta_peer.py", {folder, dir});
    if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
    ASSERT_TRUE(out.ok()) << out.status();
    for (const char* name : {"1_0", "2_0", "2_1"}) {
      const std::string meta = JoinPath(dir, name);
      const auto files = OpenModel(meta);
      ASSERT_TRUE(files.ok()) << files.status();
      EXPECT_EQ(files->format, ModelFormat::kMeta);
      ASSERT_TRUE(WriteHfModel(*files, meta + "_hf", {}).ok());
      for (const char* file : {"model.safetensors", "config.json"}) {
        EXPECT_EQ(ReadFile(JoinPath(meta + "_hf", file)).value(),
                  ReadFile(JoinPath(folder, file)).value())
            << name << " " << file;
      }
    }
  }
}

}  // namespace
}  // namespace cria::trainer

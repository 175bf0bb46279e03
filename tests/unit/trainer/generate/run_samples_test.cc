#include "trainer/generate/run_samples.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/cpu/cpu_ops.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria::trainer {
namespace {

class RunSamplesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    out_dir_ = new std::string(FreshDir("run"));
    const TinyOutcome outcome = RunTiny(TinyConfig(TinyData()), {.out_dir = *out_dir_});
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  }
  RunSamplesTest()
      : tokenizer_(Tokenizer::Load(JoinPath(TinyData(), "tokenizer.json")).value()),
        ops_(model::cpu::NewCpuOps()) {}

  std::vector<std::string> Sample(const RunSampleOptions& options) {
    const auto texts = SampleRun(StepDir(*out_dir_, 10), tokenizer_, options, ops_.get());
    if (!texts.ok()) ADD_FAILURE() << texts.status();
    return texts.ok() ? *texts : std::vector<std::string>();
  }

  inline static std::string* out_dir_ = nullptr;
  const Tokenizer tokenizer_;
  const std::unique_ptr<model::Ops> ops_;
};

TEST_F(RunSamplesTest, ContinuesEachPromptByTheSeed) {
  const auto sample = [&](uint64_t seed) {
    return Sample({.prompts = {"the llama", "she", "she"},
                   .sampling = {.temperature = 1, .seed = seed},
                   .max_tokens = 12,
                   .max_positions = 32});
  };
  const std::vector<std::string> texts = sample(1);
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_TRUE(texts[0].starts_with("the llama")) << texts[0];
  EXPECT_GT(texts[0].size(), std::string("the llama").size());
  EXPECT_TRUE(texts[1].starts_with("she")) << texts[1];
  // Each prompt has its own random numbers.
  EXPECT_NE(texts[1], texts[2]);
  EXPECT_EQ(sample(1), texts);
  EXPECT_NE(sample(2), texts);
}

TEST_F(RunSamplesTest, EndsWhereASequenceIsFull) {
  std::vector<int32_t> ids;
  tokenizer_.Encode("the llama waits", &ids);
  const auto length = static_cast<int64_t>(ids.size()) + 1;  // with begin-of-text
  const std::string prompt = "the llama waits";
  for (const int64_t room : {length - 1, length}) {
    EXPECT_EQ(Sample({.prompts = {prompt}, .max_positions = room})[0], prompt) << room;
  }
  EXPECT_GT(Sample({.prompts = {prompt}, .max_positions = length + 2})[0].size(), prompt.size());
  EXPECT_TRUE(Sample({}).empty());
}

TEST_F(RunSamplesTest, AMissingCheckpointIsAnError) {
  EXPECT_FALSE(SampleRun(StepDir(*out_dir_, 11), tokenizer_, {.prompts = {"a"}}, ops_.get()).ok());
}

}  // namespace
}  // namespace cria::trainer

#include "trainer/models/run_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

std::vector<float> Norm(const ModelFiles& files) {
  const model::WeightInfo* info = files.weights->Find("model.norm.weight");
  EXPECT_NE(info, nullptr);
  std::vector<float> values(static_cast<size_t>(info->rows()));
  EXPECT_TRUE(
      files.weights->ReadRows(*info, 0, info->rows(), model::StDtype::kF32, values.data()).ok());
  return values;
}

class RunModelTest : public testing::Test {
 protected:
  void SetUp() override {
    TrainConfig config = TinyConfig(TinyData());
    config.steps = 4;
    config.checkpoint.every = 2;
    ASSERT_TRUE(RunTiny(config, {.out_dir = run_}).status.ok());
    std::filesystem::copy(JoinPath(TinyData(), "tokenizer.json"), JoinPath(run_, "tokenizer.json"));
  }
  const std::string run_ =
      JoinPath(FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name()), "run");
};

TEST_F(RunModelTest, TakesTheNewestCheckpointOrTheOneThatIsNamed) {
  const auto newest = OpenModel(run_), last = OpenModel(StepDir(run_, 4)),
             older = OpenModel(StepDir(run_, 2));
  ASSERT_TRUE(newest.ok() && last.ok() && older.ok())
      << newest.status() << last.status() << older.status();
  EXPECT_EQ(newest->format, ModelFormat::kRun);
  EXPECT_EQ(newest->config.vocab, 300);
  EXPECT_EQ(Norm(*newest), Norm(*last));
  EXPECT_NE(Norm(*newest), Norm(*older));
  for (const ModelFiles* files : {&*newest, &*last, &*older}) {
    ASSERT_TRUE(files->tokenizer.has_value());
    EXPECT_EQ(files->bos_id, files->tokenizer->bos_id());
    EXPECT_EQ(files->eos_ids, std::vector<int32_t>{*files->tokenizer->eos_id()});
  }
}

TEST_F(RunModelTest, ADamagedNewestIsPassedOver) {
  const std::string path = JoinPath(StepDir(run_, 4), "model.safetensors");
  std::string bytes = ReadFile(path).value();
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  const auto files = OpenModel(run_), older = OpenModel(StepDir(run_, 2));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(Norm(*files), Norm(*older));
  EXPECT_EQ(OpenModel(StepDir(run_, 4)).status().code(), StatusCode::kDataLoss);
}

TEST_F(RunModelTest, WithoutACheckpointOrATokenizerItSaysSo) {
  ASSERT_TRUE(RemoveAll(JoinPath(run_, "tokenizer.json")).ok());
  const auto files = OpenModel(run_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_FALSE(files->tokenizer.has_value());
  EXPECT_NE(Message(files->tokenizer_status).find("tokenizer.json"), std::string::npos);
  for (const int step : {2, 4}) ASSERT_TRUE(RemoveAll(StepDir(run_, step)).ok());
  const Status status = OpenModel(run_).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(Message(status).find(run_), std::string::npos) << status;
}

// A fine-tuned run keeps what ends a generation and how a chat is written.
TEST_F(RunModelTest, KeepsTheGenerationSettingsOfTheModelItStartedFrom) {
  ModelFiles from;
  from.bos_id = 7;
  from.eos_ids = {3, 1};
  from.chat_template = "{{ messages }}";
  ASSERT_TRUE(SaveGenerationSettings(from, run_).ok());
  for (const std::string& path : {run_, StepDir(run_, 2)}) {
    const auto files = OpenModel(path);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->bos_id, 7);
    EXPECT_EQ(files->eos_ids, (std::vector<int32_t>{3, 1}));
    EXPECT_EQ(files->chat_template, "{{ messages }}");
  }
}

TEST(ModelFilesTest, WhatIsNoModelIsSaid) {
  const std::string dir = FreshDir("nothing");
  EXPECT_EQ(OpenModel(JoinPath(dir, "gone")).status().code(), StatusCode::kNotFound);
  const Status empty = OpenModel(dir).status();
  EXPECT_EQ(empty.code(), StatusCode::kNotFound);
  EXPECT_NE(Message(empty).find("config.json"), std::string::npos) << empty;
  ASSERT_TRUE(WriteFileAtomic(JoinPath(dir, "x.bin"), "what is this").ok());
  const Status file = OpenModel(JoinPath(dir, "x.bin")).status();
  EXPECT_EQ(file.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(file).find("GGUF"), std::string::npos) << file;
}

}  // namespace
}  // namespace cria::trainer

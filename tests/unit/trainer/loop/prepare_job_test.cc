#include "trainer/loop/prepare_job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria::trainer {
namespace {

class PrepareJobTest : public testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", JoinPath(dir_, "cache").c_str(), 1); }
  TrainConfig WithInput(const std::string& input) {
    TrainConfig config = TinyConfig("");
    config.data.inputs = {input};
    config.data.vocab = 280;
    return config;
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = JoinPath(dir_, name);
    EXPECT_TRUE(MakeDirs(DirName(path)).ok());
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    return path;
  }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(PrepareJobTest, UsesAPreparedFolderAsItIs) {
  const StatusOr<JobData> data = PrepareJob(TinyConfig(TinyData()), nullptr, nullptr);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->dir, TinyData());
  EXPECT_EQ(data->tokenizer.vocab_size(), 300);
  EXPECT_GT(data->train.num_tokens(), 1000);
  EXPECT_GT(data->val.num_tokens(), 0);
  EXPECT_FALSE(Exists(JoinPath(dir_, "cache")));
}

TEST_F(PrepareJobTest, PreparesInputsOnceAndAgainWhenTheyChange) {
  const std::string text = Write("text.txt", TinyText(100));
  const StatusOr<JobData> first = PrepareJob(WithInput(text), nullptr, nullptr);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->dir.starts_with(JoinPath(dir_, "cache"))) << first->dir;
  const StatusOr<JobData> second = PrepareJob(WithInput(text), nullptr, nullptr);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->train.manifest().train.shards[0].hash,
            first->train.manifest().train.shards[0].hash);
  // An edited corpus is not an error, and not ignored.
  Write("text.txt", TinyText(120, 2));
  const StatusOr<JobData> third = PrepareJob(WithInput(text), nullptr, nullptr);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_NE(third->train.manifest().train.shards[0].hash,
            first->train.manifest().train.shards[0].hash);
}

TEST_F(PrepareJobTest, EqualNamesInTwoFoldersAreTwoCorpora) {
  Write("one/text.txt", TinyText(100, 1));
  Write("two/text.txt", TinyText(100, 2));
  char here[4096];
  ASSERT_NE(getcwd(here, sizeof(here)), nullptr);
  std::vector<std::string> dirs;
  for (const char* folder : {"one", "two"}) {
    ASSERT_EQ(chdir(JoinPath(dir_, folder).c_str()), 0);
    const StatusOr<JobData> data = PrepareJob(WithInput("text.txt"), nullptr, nullptr);
    ASSERT_TRUE(data.ok()) << data.status();
    dirs.push_back(data->dir);
  }
  ASSERT_EQ(chdir(here), 0);
  EXPECT_NE(dirs[0], dirs[1]);
}

TEST_F(PrepareJobTest, OtherSizesAreOtherFolders) {
  const std::string text = Write("text.txt", TinyText(100));
  TrainConfig config = WithInput(text);
  const std::string first = PrepareJob(config, nullptr, nullptr)->dir;
  config.data.vocab = 290;
  EXPECT_NE(PrepareJob(config, nullptr, nullptr)->dir, first);
  config.data.vocab = 280;
  config.data.val_fraction = 0.2;
  EXPECT_NE(PrepareJob(config, nullptr, nullptr)->dir, first);
}

TEST_F(PrepareJobTest, AStopIsCancelled) {
  const std::atomic<bool> stop = true;
  const std::string text = Write("text.txt", TinyText(100));
  EXPECT_EQ(PrepareJob(WithInput(text), nullptr, &stop).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace cria::trainer

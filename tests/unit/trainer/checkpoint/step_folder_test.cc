#include "trainer/checkpoint/step_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/file.h"
#include "tests/unit/trainer/checkpoint/checkpoint_fixture.h"

namespace cria::trainer {
namespace {

TEST(ParseStepNameTest, AcceptsOnlyTheNamesThatSaveGives) {
  StepFolder folder;
  EXPECT_TRUE(ParseStepName("step_0", &folder));
  EXPECT_EQ(folder.step, 0);
  EXPECT_TRUE(ParseStepName("step_9223372036854775807", &folder));
  EXPECT_TRUE(ParseStepName("step_12.old", &folder));
  EXPECT_EQ(folder.step, 12);
  EXPECT_TRUE(folder.displaced);
  for (const char* name : {"", "step", "step_", "step_x", "step_-1", "step_+1", "step_01",
                           "step_1 ", "step_9223372036854775808", "step_1.tmp-2-3",
                           "step_1.old.old", "step_.old", "Step_1", "xstep_1"}) {
    EXPECT_FALSE(ParseStepName(name, &folder)) << name;
  }
}

TEST(ListStepFoldersTest, SortsByNumberNewestFirst) {
  const std::string dir = FreshFolder("list");
  for (const char* name :
       {"step_9", "step_10", "step_100", "step_10.old", "step_11.tmp-1-0", "best"}) {
    ASSERT_TRUE(MakeDirs(JoinPath(dir, name)).ok());
  }
  const auto folders = ListStepFolders(dir);
  ASSERT_TRUE(folders.ok());
  std::vector<std::string> names;
  for (const StepFolder& folder : *folders) names.push_back(BaseName(folder.path));
  EXPECT_EQ(names, (std::vector<std::string>{"step_100", "step_10", "step_10.old", "step_9"}));
  EXPECT_TRUE(ListStepFolders(dir + "/absent")->empty());
}

TEST(FolderLockTest, ExcludesOthersUntilReleased) {
  const std::string dir = FreshFolder("lock");
  auto first = FolderLock::TryAcquire(dir);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(FolderLock::TryAcquire(dir), nullptr);
  first.reset();
  EXPECT_NE(FolderLock::TryAcquire(dir), nullptr);
  EXPECT_EQ(FolderLock::TryAcquire(dir + "/absent"), nullptr);
  EXPECT_FALSE(FolderLock::Acquire(dir + "/absent").ok());
}

TEST(TempStepFolderTest, IsRemovedUnlessPublished) {
  const std::string dir = FreshFolder("temp");
  {
    const auto folder = TempStepFolder::Create(dir, 3);
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE(WriteFileAtomic(JoinPath((*folder)->path(), "x"), "1").ok());
  }
  EXPECT_TRUE(ListDir(dir)->empty());
  {
    const auto folder = TempStepFolder::Create(dir, 3);
    ASSERT_TRUE((*folder)->Publish().ok());
  }
  EXPECT_EQ(*ListDir(dir), std::vector<std::string>{"step_3"});
}

TEST(TempStepFolderTest, TakesTheNextNameWhenAnEarlierProcessLeftOne) {
  const std::string dir = FreshFolder("taken");
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(MakeDirs(StrCat(dir, "/step_5.tmp-", getpid(), "-", i)).ok());
  }
  EXPECT_TRUE(TempStepFolder::Create(dir, 5).ok());
}

// The owner is another process, alive and then killed: told by pipes, not by waiting a while.
TEST(RemoveLeftoversTest, LeavesTheFolderOfALiveProcessAndRemovesThatOfADeadOne) {
  const std::string dir = FreshFolder("owner");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto folder = TempStepFolder::Create(dir, 8);
    const char ok = folder.ok() ? 'y' : 'n';
    if (write(ready[1], &ok, 1) != 1) _exit(1);
    while (true) pause();
  }
  char ok = 'n';
  ASSERT_EQ(read(ready[0], &ok, 1), 1);
  ASSERT_EQ(ok, 'y');
  EXPECT_TRUE(RemoveLeftovers(dir).ok());
  EXPECT_EQ(ListDir(dir)->size(), 1u);

  ASSERT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(RemoveLeftovers(dir).ok());
  EXPECT_TRUE(ListDir(dir)->empty());
  close(ready[0]);
  close(ready[1]);
}

TEST(RemoveStepFolderTest, RemovesAllOfIt) {
  const std::string dir = FreshFolder("remove");
  ASSERT_TRUE(SaveTiny(dir, 4).ok());
  ASSERT_TRUE(RemoveStepFolder(dir, {.step = 4, .path = JoinPath(dir, "step_4")}).ok());
  EXPECT_TRUE(ListDir(dir)->empty());
}

}  // namespace
}  // namespace cria::trainer

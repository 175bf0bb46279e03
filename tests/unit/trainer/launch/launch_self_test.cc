// This test launches itself: with the argument "rank" it is one of the ranks, which writes its
// environment and its arguments to a file and ends as it is told.

#include "trainer/launch/launch_self.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/str.h"
#include "tests/support/process.h"

namespace cria::trainer {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "unset" : value;
}

// rank FOLDER END_OF_0 END_OF_1 ...: an exit status, or "kill".
int BeRank(int argc, char** argv) {
  const std::string rank = Variable("RANK");
  const std::string folder = argv[2];
  const Status written = WriteFileAtomic(
      JoinPath(folder, rank),
      StrCat(Variable("WORLD_SIZE"), " of ", argc - 3, ", log ", Variable("CRIA_LOG")));
  if (!written.ok()) return 99;
  const std::string end = argv[3 + std::atoi(rank.c_str())];
  if (end == "kill") std::raise(SIGKILL);
  // Only rank 0's output is the command's own.
  std::fprintf(stderr, "rank %s ends with %s\n", rank.c_str(), end.c_str());
  return std::atoi(end.c_str());
}

// What ranks that end so come to.
Status Launched(const std::string& folder, const std::vector<std::string>& ends) {
  std::vector<std::string> arguments = {"rank", folder};
  arguments.insert(arguments.end(), ends.begin(), ends.end());
  return LaunchSelf(arguments, static_cast<int>(ends.size()));
}

class LaunchSelfTest : public testing::Test {
 protected:
  void SetUp() override { unsetenv("CRIA_LOG"); }

  const std::string folder_ = FreshDir("ranks");
};

TEST_F(LaunchSelfTest, RunsThisProgramAsAllRanks) {
  const Status status = Launched(folder_, {"0", "0", "0"});
  EXPECT_TRUE(status.ok()) << Message(status);
  EXPECT_EQ(ListDir(folder_).value().size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ReadFile(JoinPath(folder_, StrCat(rank))).value_or(""), "3 of 3, log error");
  }
}

TEST_F(LaunchSelfTest, TheUsersLogLevelStays) {
  setenv("CRIA_LOG", "debug", 1);
  EXPECT_TRUE(Launched(folder_, {"0"}).ok());
  EXPECT_EQ(ReadFile(JoinPath(folder_, "0")).value_or(""), "1 of 1, log debug");
}

TEST_F(LaunchSelfTest, AMistakeIsTheUsers) {
  const Status status = Launched(folder_, {"0", "2"});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("rank 1"), std::string::npos) << Message(status);
}

TEST_F(LaunchSelfTest, ARankThatFailsIsNamed) {
  const Status status = Launched(folder_, {"0", "0", "1"});
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(Message(status).find("rank 2"), std::string::npos) << Message(status);
  const Status killed = Launched(folder_, {"kill", "0"});
  EXPECT_EQ(killed.code(), StatusCode::kInternal);
  EXPECT_NE(Message(killed).find("rank 0"), std::string::npos) << Message(killed);
  EXPECT_NE(Message(killed).find("SIGKILL"), std::string::npos) << Message(killed);
}

TEST_F(LaunchSelfTest, NoRanksAreAMistake) {
  EXPECT_EQ(LaunchSelf({"rank", folder_}, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ListDir(folder_).value().empty());
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "rank") return cria::trainer::BeRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// The rules on this repository. The test reads the real source tree, behind the WORKSPACE file that
// Bazel links into the test's folder; it runs each time, because Bazel does not see what it reads.

#include <gtest/gtest.h>

#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "tests/tidy/rules.h"

namespace cria::tidy {
namespace {

const std::string& Root() {
  static const auto* root = [] {
    std::error_code error;
    const std::filesystem::path workspace = std::filesystem::canonical("WORKSPACE", error);
    return new std::string(error ? "" : workspace.parent_path().string());
  }();
  return *root;
}

const std::vector<SourceFile>& Sources() {
  static const auto* sources =
      new std::vector<SourceFile>(LoadSources(Root()).value_or(std::vector<SourceFile>()));
  return *sources;
}

std::string AllProblems(Problems (*check)(const SourceFile&)) {
  std::string all;
  for (const SourceFile& file : Sources()) {
    for (const std::string& problem : check(file)) all += StrCat(problem, "\n");
  }
  return all;
}

// Without this one, an empty list would pass every other test.
TEST(TreeTest, TheSourcesAreFound) {
  ASSERT_TRUE(Exists(JoinPath(Root(), "base/status.h"))) << "root: " << Root();
  EXPECT_GE(Sources().size(), 40u);
}

TEST(TreeTest, DependenciesFollowTheTable) { EXPECT_EQ(AllProblems(CheckDependencies), ""); }

TEST(TreeTest, NoBannedCalls) { EXPECT_EQ(AllProblems(CheckBannedCalls), ""); }

TEST(TreeTest, HeavyHeadersStayInTheirWrappers) { EXPECT_EQ(AllProblems(CheckHeavyHeaders), ""); }

TEST(TreeTest, IncludeGuardsFollowThePath) { EXPECT_EQ(AllProblems(CheckIncludeGuard), ""); }

TEST(TreeTest, FilesAndLinesAreShort) { EXPECT_EQ(AllProblems(CheckLength), ""); }

TEST(TreeTest, EveryHeaderCompilesAlone) {
  std::string all;
  for (const std::string& problem : CompileAlone(Root(), HeadersNotProvedByTheBuild(Sources()))) {
    all += StrCat(problem, "\n");
  }
  EXPECT_EQ(all, "");
}

}  // namespace
}  // namespace cria::tidy

// The rules themselves: each must pass a clean file and fail a planted bad one.

#include "tests/tidy/rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"

namespace cria::tidy {
namespace {

TEST(RulesTest, BlankingKeepsLinesAndCodeOnly) {
  EXPECT_EQ(BlankCommentsAndStrings("a // b\nc /* d\n e */ f"), "a     \nc     \n      f");
  EXPECT_EQ(BlankCommentsAndStrings("x = \"a//b\\\"c\"; // d"), "x = \"       \";     ");
  EXPECT_EQ(BlankCommentsAndStrings("c = '\"'; n = 1'000; d"), "c = ' '; n = 1'000; d");
  EXPECT_EQ(BlankCommentsAndStrings("R\"x(a)\" exit(1))x\" y"), "                   y");
  EXPECT_EQ(BlankCommentsAndStrings("\"unfinished\nx"), "\"          \nx");
  EXPECT_EQ(BlankCommentsAndStrings("/* open"), "       ");
}

TEST(RulesTest, IncludesAreFoundOutsideCommentsOnly) {
  const auto includes = IncludesOf(
      {"base/x.cc", "#include \"base/x.h\"\n// #include \"a/b.h\"\n#  include <vector>  // why\n"});
  ASSERT_EQ(includes.size(), 2u);
  EXPECT_EQ(includes[0].path, "base/x.h");
  EXPECT_TRUE(includes[0].quoted);
  EXPECT_EQ(includes[1].line, 3);
  EXPECT_EQ(includes[1].path, "vector");
  EXPECT_FALSE(includes[1].quoted);
}

// Whether a file at `from` may include `to`.
bool Allowed(const std::string& from, const std::string& to) {
  return CheckDependencies({from, StrCat("\n#include \"", to, "\"\n")}).empty();
}

TEST(RulesTest, DependenciesFollowTheTable) {
  EXPECT_TRUE(Allowed("base/file.cc", "base/file.h"));
  EXPECT_TRUE(Allowed("base/status.h", "absl/status/status.h"));
  EXPECT_TRUE(Allowed("model/llama/model.cc", "base/rng.h"));
  EXPECT_TRUE(Allowed("model/llama/model.cc", "model/cpu/ops.h"));
  EXPECT_TRUE(Allowed("model/parallel/tp.cc", "comm/api/communicator.h"));
  EXPECT_TRUE(Allowed("model/cpu/gemm.cc", "model/tensor.h"));
  EXPECT_TRUE(Allowed("comm/shm/transport.cc", "debug/observer.h"));
  EXPECT_TRUE(Allowed("sched/server.cc", "comm/fabric/model.h"));
  EXPECT_TRUE(Allowed("trainer/loop.cc", "storage/checkpoint/save.h"));
  EXPECT_TRUE(Allowed("tests/unit/model/x_test.cc", "model/cpu/ops.h"));

  EXPECT_FALSE(Allowed("base/file.cc", "model/tensor.h"));
  EXPECT_FALSE(Allowed("debug/ring.cc", "comm/api/communicator.h"));
  EXPECT_FALSE(Allowed("model/llama/model.cc", "comm/shm/transport.h"));
  EXPECT_FALSE(Allowed("model/llama/model.cc", "trainer/loop.h"));
  EXPECT_FALSE(Allowed("model/cpu/gemm.cc", "comm/api/communicator.h"));
  EXPECT_FALSE(Allowed("model/cuda/gemm.cu", "comm/api/communicator.h"));
  EXPECT_FALSE(Allowed("comm/fabric/model.cc", "debug/observer.h"));
  EXPECT_FALSE(Allowed("comm/fabric/model.cc", "comm/api/communicator.h"));
  EXPECT_FALSE(Allowed("storage/client/read.cc", "comm/api/communicator.h"));
  EXPECT_FALSE(Allowed("sched/core/planner.cc", "sched/server.h"));
  EXPECT_FALSE(Allowed("sched/server.cc", "comm/api/communicator.h"));
  EXPECT_FALSE(Allowed("trainer/loop.cc", "tests/support/fake.h"));
  EXPECT_FALSE(Allowed("base/file.cc", "file.h"));
  EXPECT_FALSE(Allowed("base/file.cc", "../base/file.h"));
  EXPECT_FALSE(Allowed("newfolder/file.cc", "base/file.h"));

  EXPECT_EQ(CheckDependencies({"base/a.cc", "// c\n#include \"trainer/loop.h\"\n"}),
            Problems{"base/a.cc:2: base may not include trainer (trainer/loop.h)"});
}

size_t NumBanned(const std::string& path, const std::string& text) {
  return CheckBannedCalls({path, text}).size();
}

TEST(RulesTest, RandomnessOfTheStandardLibraryIsBannedEverywhere) {
  for (const std::string path : {"base/x.cc", "trainer/x.h", "tests/unit/x_test.cc"}) {
    EXPECT_EQ(NumBanned(path, "std::shuffle(a, b, g);"), 1u);
    EXPECT_EQ(NumBanned(path, "std::random_device device;"), 1u);
    EXPECT_EQ(NumBanned(path, "std::uniform_int_distribution<int> d(0, 1);"), 1u);
    EXPECT_EQ(NumBanned(path, "std::normal_distribution<> d;"), 1u);
    EXPECT_EQ(NumBanned(path, "int x = rand();"), 1u);
    EXPECT_EQ(NumBanned(path, "#include <regex>\n"), 1u);
    EXPECT_EQ(NumBanned(path, "// std::shuffle(a)\nconst char* s = \"rand()\";"), 0u);
    EXPECT_EQ(NumBanned(path, "KeyedShuffle(x); my_rand(); operand(1); order.shuffle(2);"), 0u);
  }
  EXPECT_EQ(CheckBannedCalls({"base/x.cc", "int a;\nint b = std::rand();\n"}),
            Problems{"base/x.cc:2: rand differs between standard libraries; draw from base/rng.h"});
}

TEST(RulesTest, LibrariesMayNotExitOrPrint) {
  const std::string text =
      "#include <iostream>\nvoid F() { std::exit(1); }\nvoid G() { exit (1); }";
  EXPECT_EQ(NumBanned("base/x.cc", text), 3u);
  EXPECT_EQ(NumBanned("trainer/train.cc", text + "\nint main(int, char**) { return 0; }"), 0u);
  EXPECT_EQ(NumBanned("tests/unit/x_test.cc", text), 0u);
  EXPECT_EQ(NumBanned("base/x.cc", "_exit(1); on_exit(f); int exit_code = 1;"), 0u);
}

TEST(RulesTest, TestsMayNotSleep) {
  const std::string text = "std::this_thread::sleep_for(1s); ::usleep(3);";
  EXPECT_EQ(NumBanned("tests/unit/x_test.cc", text), 2u);
  EXPECT_EQ(NumBanned("comm/x.cc", text), 0u);
}

TEST(RulesTest, HeavyHeadersStayInTheirWrappers) {
  const auto num = [](const std::string& path, const std::string& header) {
    return CheckHeavyHeaders({path, StrCat("#include <", header, ">\n")}).size();
  };
  EXPECT_EQ(num("base/json.h", "nlohmann/json.hpp"), 0u);
  EXPECT_EQ(num("trainer/x.h", "nlohmann/json.hpp"), 1u);
  EXPECT_EQ(num("base/log.h", "spdlog/spdlog.h"), 1u);
  EXPECT_EQ(num("trainer/x.h", "base/json.h"), 1u);
  EXPECT_EQ(num("trainer/x.cc", "base/json.h"), 0u);
  EXPECT_EQ(num("model/cpu/gemm.h", "dnnl.hpp"), 1u);
  EXPECT_EQ(num("model/cpu/gemm.cc", "dnnl.hpp"), 0u);
  EXPECT_EQ(num("trainer/main.cc", "CLI/CLI.hpp"), 0u);
}

TEST(RulesTest, GuardsFollowThePath) {
  const std::string good =
      "// x\n#ifndef CRIA_BASE_A_B_H_\n#define CRIA_BASE_A_B_H_\nint x;\n"
      "#endif  // CRIA_BASE_A_B_H_\n";
  EXPECT_EQ(CheckIncludeGuard({"base/a_b.h", good}), Problems{});
  EXPECT_EQ(CheckIncludeGuard({"base/a/b.h", good}), Problems{});
  EXPECT_EQ(CheckIncludeGuard({"base/b.h", good}).size(), 1u);
  EXPECT_EQ(CheckIncludeGuard({"base/a_b.h", good + "int y;\n"}).size(), 1u);
  EXPECT_EQ(CheckIncludeGuard({"base/a_b.h", "#pragma once\n"}).size(), 1u);
  EXPECT_EQ(CheckIncludeGuard({"base/a_b.cc", ""}), Problems{});
}

TEST(RulesTest, LengthsAreLimited) {
  std::string text;
  for (int i = 0; i < 700; ++i) text += "x\n";
  EXPECT_EQ(CheckLength({"base/x.cc", text}), Problems{});
  EXPECT_EQ(CheckLength({"base/x.cc", text + "x\n"}).size(), 1u);
  EXPECT_EQ(CheckLength({"base/x.cc", std::string(100, 'x')}), Problems{});
  EXPECT_EQ(CheckLength({"base/x.cc", std::string(101, 'x')}).size(), 1u);
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\u00e4";
  EXPECT_EQ(CheckLength({"base/x.cc", umlauts}), Problems{});
}

TEST(RulesTest, AHeaderIncludedFirstIsProvedByTheBuild) {
  EXPECT_EQ(HeadersNotProvedByTheBuild({{"base/a.h", ""},
                                        {"base/b.h", ""},
                                        {"base/c.h", ""},
                                        {"base/a.cc", "// x\n#include \"base/a.h\"\n"},
                                        {"base/b.cc", "#include <vector>\n#include \"base/b.h\"\n"},
                                        {"tests/c_test.cc", "#include \"base/c.h\"\n"}}),
            std::vector<std::string>{"base/b.h"});
}

TEST(RulesTest, CompilingAloneFindsMissingIncludesAndGuards) {
  const std::string root = JoinPath(testing::TempDir(), "tree");
  const auto write = [&](const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(JoinPath(root, name), text).ok());
  };
  ASSERT_TRUE(MakeDirs(root).ok());
  write("good.h", "#ifndef G\n#define G\n#include <string>\ninline std::string s;\n#endif\n");
  write("missing.h", "#ifndef M\n#define M\ninline std::string s;\n#endif\n");
  write("unguarded.h", "inline int x = 0;\n");
  EXPECT_EQ(CompileAlone(root, {"good.h"}), Problems{});
  const Problems problems = CompileAlone(root, {"good.h", "missing.h", "unguarded.h"});
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].rfind("missing.h:1: does not compile alone:\n", 0), 0u);
  EXPECT_EQ(problems[1].rfind("unguarded.h:1: does not compile alone:\n", 0), 0u);
}

TEST(RulesTest, LoadingSkipsBuildOutputsAndOtherFiles) {
  const std::string root = JoinPath(testing::TempDir(), "sources");
  for (const std::string dir : {"base", "bazel-out", ".git", "runs", "base/runs"}) {
    ASSERT_TRUE(MakeDirs(JoinPath(root, dir)).ok());
    ASSERT_TRUE(WriteFileAtomic(JoinPath(root, dir + "/x.cc"), dir).ok());
  }
  ASSERT_TRUE(WriteFileAtomic(JoinPath(root, "base/notes.txt"), "").ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(root, "base/BUILD"), "").ok());
  std::vector<std::string> paths;
  const std::vector<SourceFile> files = LoadSources(root).value();
  for (const SourceFile& file : files) paths.push_back(file.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"base/BUILD", "base/runs/x.cc", "base/x.cc"}));
  EXPECT_FALSE(LoadSources(JoinPath(root, "none")).ok());
}

}  // namespace
}  // namespace cria::tidy

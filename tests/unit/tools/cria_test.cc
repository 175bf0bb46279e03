// The scripts around the build: ./cria's own errors, and how tools/test_summary.py counts.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/file.h"
#include "base/str.h"

namespace cria {
namespace {

struct Outcome {
  int exit_status;
  std::string output;  // standard output and error together
};

Outcome Shell(const std::string& command) {
  Outcome outcome{-1, ""};
  std::FILE* pipe = ::popen(StrCat(command, " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_status = WEXITSTATUS(status);
  return outcome;
}

TEST(CriaScriptTest, HelpNamesEveryCommand) {
  for (const char* flag : {"help", "--help", "-h", ""}) {
    const Outcome outcome = Shell(StrCat("./cria ", flag));
    EXPECT_EQ(outcome.exit_status, 0);
    for (const char* command :
         {"train", "launch", "test", "data", "tokenize", "eval", "check", "bench", "help"}) {
      EXPECT_NE(outcome.output.find(StrCat("./cria ", command)), std::string::npos) << command;
    }
  }
}

TEST(CriaScriptTest, AnUnknownCommandIsNamedAndExitsWith2) {
  const Outcome outcome = Shell("./cria trian");
  EXPECT_EQ(outcome.exit_status, 2);
  EXPECT_EQ(outcome.output, "cria: unknown command \"trian\"; ./cria help lists the commands\n");
}

// A clone whose packages and builds are there, and whose programs print what they were given.
std::string BuiltClone() {
  const std::string root = JoinPath(testing::TempDir(), "clone");
  const Outcome made = Shell(StrCat(
      "set -e; rm -rf ", root, "; mkdir -p ", root, "/tools ", root, "/bin; cp cria ", root,
      "; cd ", root,
      "; for f in tools/setup.sh bin/bazel; do printf '#!/bin/sh\n' > $f; chmod +x $f; done;"
      "for f in trainer/launch/launch trainer/train comm/comm trainer/models/import_export; do"
      "  mkdir -p bazel-bin/$(dirname $f);"
      "  printf '#!/bin/sh\necho $0; for a; do echo \"<$a>\"; done\n' > bazel-bin/$f;"
      "  chmod +x bazel-bin/$f; done"));
  EXPECT_EQ(made.exit_status, 0) << made.output;
  return root;
}

Outcome InClone(const std::string& root, const std::string& arguments) {
  return Shell(StrCat("PATH=", root, "/bin:$PATH XDG_CACHE_HOME=", root, "/cache ", root, "/cria ",
                      arguments));
}

TEST(CriaScriptTest, AProgramGetsItsArgumentsAsTheyAre) {
  const std::string root = BuiltClone();
  EXPECT_EQ(InClone(root, "train --set 'a=b c' ''").output,
            StrCat(root, "/bazel-bin/trainer/train\n<--set>\n<a=b c>\n<>\n"));
  EXPECT_EQ(InClone(root, "import hf x").output,
            StrCat(root, "/bazel-bin/trainer/models/import_export\n<import>\n<hf>\n<x>\n"));
}

TEST(CriaScriptTest, LaunchGivesTheLauncherTheProgramOfTheCommand) {
  const std::string root = BuiltClone();
  const std::string launcher = StrCat(root, "/bazel-bin/trainer/launch/launch\n");
  EXPECT_EQ(InClone(root, "launch -n 2 -- train --set 'a=b c' -- x").output,
            StrCat(launcher, "<-n>\n<2>\n<-->\n<", root,
                   "/bazel-bin/trainer/train>\n<--set>\n<a=b c>\n<-->\n<x>\n"));
  EXPECT_EQ(InClone(root, "launch -n 2 -- comm bench").output,
            StrCat(launcher, "<-n>\n<2>\n<-->\n<", root, "/bazel-bin/comm/comm>\n<bench>\n"));
  EXPECT_EQ(InClone(root, "launch -n 2 -- export hf x").output,
            StrCat(launcher, "<-n>\n<2>\n<-->\n<", root,
                   "/bazel-bin/trainer/models/import_export>\n<export>\n<hf>\n<x>\n"));
  // The launcher says what is missing.
  EXPECT_EQ(InClone(root, "launch --help").output, StrCat(launcher, "<--help>\n"));
  EXPECT_EQ(InClone(root, "launch -n 2 --").output, StrCat(launcher, "<-n>\n<2>\n"));
}

TEST(CriaScriptTest, LaunchRefusesWhatIsNoCommandOfRanks) {
  const std::string root = BuiltClone();
  const Outcome unknown = InClone(root, "launch -n 2 -- trian");
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_EQ(unknown.output, "cria: unknown command \"trian\"; ./cria help lists the commands\n");
  EXPECT_EQ(InClone(root, "launch -n 2 -- launch -n 2 -- train").exit_status, 2);
  EXPECT_EQ(InClone(root, "launch -n 2 -- test").exit_status, 2);
}

TEST(SetupTest, ListsThePackagesAndIsDoneWhenTheyAreThere) {
  const Outcome list = Shell("tools/setup.sh --list");
  EXPECT_EQ(list.exit_status, 0);
  EXPECT_NE(list.output.find("bazel-bootstrap\n"), std::string::npos);
  // This very test was built with them.
  const Outcome again = Shell("tools/setup.sh");
  EXPECT_EQ(again.exit_status, 0);
  EXPECT_EQ(again.output, "");
}

TEST(SetupTest, NamesTheMissingPackagesWhenAptIsMissing) {
  // A machine with a package list, without the packages, without apt.
  const std::string bin = JoinPath(testing::TempDir(), "bin");
  ASSERT_TRUE(MakeDirs(bin).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(bin, "dpkg-query"),
                              "#!/bin/sh\necho 'ii  g++'\necho 'un  libabsl-dev'\n")
                  .ok());
  const Outcome outcome = Shell(StrCat("chmod +x ", bin, "/dpkg-query; ln -sf $(command -v sed) ",
                                       bin, "/sed; PATH=", bin, " /bin/bash tools/setup.sh"));
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_EQ(outcome.output.rfind("tools/setup.sh: no apt-get here; install by hand: ", 0), 0u)
      << outcome.output;
  EXPECT_NE(outcome.output.find(" libabsl-dev "), std::string::npos);
  EXPECT_EQ(outcome.output.find(" g++ "), std::string::npos);
}

// Writes Bazel's events and a test.xml as they look, and counts them.
class SummaryTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir();
    events_.clear();
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(JoinPath(dir_, name), text).ok());
  }
  void AddTarget(const std::string& label, bool built = true) {
    events_ += StrCat(R"({"id":{"targetConfigured":{"label":")", label,
                      R"("}},"configured":{"testSize":"SMALL"}})", "\n",
                      R"({"id":{"targetCompleted":{"label":")", label, R"("}})",
                      built ? R"(,"completed":{"success":true})" : "", "}\n");
  }
  void AddResult(const std::string& label, const std::string& status, const std::string& xml,
                 int attempt = 1) {
    events_ +=
        StrCat(R"({"id":{"testResult":{"label":")", label, R"(","run":1,"shard":1,"attempt":)",
               attempt, R"(}},"testResult":{"status":")", status,
               R"(","testActionOutput":[{"name":"test.xml","uri":"file://)", JoinPath(dir_, xml),
               R"("}]}})", "\n");
  }
  Outcome Summarise(int bazel_status) {
    Write("events", events_);
    return Shell(StrCat("python3 tools/test_summary.py --bazel-status ", bazel_status, " ",
                        JoinPath(dir_, "events")));
  }

  std::string dir_;
  std::string events_;
};

constexpr char kMixedXml[] = R"(<testsuites><testsuite name="A">
<testcase name="Ok" status="run" result="completed" classname="A" />
<testcase name="Off" status="notrun" result="suppressed" classname="A" />
<testcase name="Skips" status="run" result="skipped" classname="A">
  <skipped message="a_test.cc:5&#x0A;needs a GPU&#x0A;"><![CDATA[x]]></skipped></testcase>
<testcase name="Fails" status="run" result="completed" classname="A">
  <failure message="a_test.cc:3&#x0A;1 is not 2" type=""><![CDATA[x]]></failure></testcase>
</testsuite></testsuites>)";

TEST_F(SummaryTest, CountsCasesAndShowsReasons) {
  Write("mixed.xml", kMixedXml);
  AddTarget("//a:mixed");
  AddResult("//a:mixed", "FAILED", "mixed.xml");
  const Outcome outcome = Summarise(3);
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_EQ(outcome.output,
            "Skipped:\n"
            "  //a:mixed A.Off: disabled in the source\n"
            "  //a:mixed A.Skips: needs a GPU\n"
            "Failed:\n"
            "  //a:mixed A.Fails: a_test.cc:3\n"
            "    1 is not 2\n"
            "1 passed, 1 failed, 2 skipped\n");
}

TEST_F(SummaryTest, CountsWhatDidNotBuildRunOrReportAsFailed) {
  AddTarget("//a:broken", /*built=*/false);
  AddTarget("//a:lost");
  AddTarget("//a:timeout");
  AddResult("//a:timeout", "TIMEOUT", "none.xml");
  const Outcome outcome = Summarise(1);
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_NE(outcome.output.find("//a:broken: did not build\n"), std::string::npos);
  EXPECT_NE(outcome.output.find("//a:lost: did not run\n"), std::string::npos);
  EXPECT_NE(outcome.output.find("//a:timeout: timeout\n"), std::string::npos);
  EXPECT_TRUE(outcome.output.ends_with("\n0 passed, 3 failed, 0 skipped\n")) << outcome.output;
}

TEST_F(SummaryTest, TheLastAttemptCounts) {
  Write("mixed.xml", kMixedXml);
  Write("good.xml", R"(<testsuites><testcase name="Ok" classname="A"/></testsuites>)");
  AddTarget("//a:flaky");
  AddResult("//a:flaky", "FAILED", "mixed.xml", 1);
  AddResult("//a:flaky", "PASSED", "good.xml", 2);
  const Outcome outcome = Summarise(0);
  EXPECT_EQ(outcome.exit_status, 0);
  EXPECT_EQ(outcome.output, "1 passed, 0 failed, 0 skipped\n");
}

TEST_F(SummaryTest, ABazelThatDiedIsAFailure) {
  AddTarget("//a:x");
  events_ += "{\"id\": cut off";
  const Outcome outcome = Summarise(37);
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(outcome.output.ends_with("0 passed, 1 failed, 0 skipped\n"));
  events_.clear();
  EXPECT_EQ(Summarise(37).exit_status, 1);
}

}  // namespace
}  // namespace cria

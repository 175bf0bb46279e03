// `cria data` as a user runs it: help, exit codes, errors of one line, JSON, Ctrl-C.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/data/test_folder.h"

extern char** environ;

namespace cria::trainer {
namespace {

constexpr double kDeadlineSeconds = 120;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class DataCommandTest : public testing::Test {
 protected:
  // Starts the program; its standard input is `in` (-1: /dev/null).
  pid_t Start(const std::vector<std::string>& args, int in = -1) {
    std::vector<std::string> words = {"trainer/data/data"};
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (in >= 0) {
      posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    } else {
      posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    }
    for (const auto& [fd, path] :
         {std::pair(STDOUT_FILENO, out_), std::pair(STDERR_FILENO, err_)}) {
      posix_spawn_file_actions_addopen(&actions, fd, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0600);
    }
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  Outcome Wait(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status)) << "wait status " << status;
    return {WEXITSTATUS(status), ReadFile(out_).value(), ReadFile(err_).value()};
  }

  Outcome Run(const std::vector<std::string>& args) { return Wait(Start(args)); }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = JoinPath(dir_, name);
    EXPECT_TRUE(WriteFileAtomic(path, bytes).ok());
    return path;
  }

  std::string Prose() {
    std::string text;
    for (int i = 0; i < 500; ++i) text += StrCat("the ", i, " sons went to the city\n");
    return text;
  }

  const std::string dir_ =
      MakeTestFolder(testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string out_ = JoinPath(dir_, "stdout");
  const std::string err_ = JoinPath(dir_, "stderr");
};

TEST_F(DataCommandTest, HelpIsEverywhereAndUsageErrorsExitWithTwo) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"--help"}, {"prepare", "--help"}, {"audit", "--help"}, {"inspect", "--help"}}) {
    const Outcome outcome = Run(args);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_NE(outcome.out.find("--help"), std::string::npos);
  }
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{},
                                             {"prepares"},
                                             {"prepare"},
                                             {"prepare", "-o", dir_ + "/x", "--vocab-size", "many"},
                                             {"prepare", "-o", dir_ + "/x", "--format", "xml"},
                                             {"prepare", "-o", dir_ + "/x", "--val-fraction", "2"},
                                             {"prepare", "-o", dir_ + "/x", "--split-on", "\\q"},
                                             {"audit"}}) {
    const Outcome outcome = Run(args);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_FALSE(outcome.err.empty());
  }
}

TEST_F(DataCommandTest, PreparesAuditsAndInspects) {
  const std::string text = Write("a.txt", Prose());
  const std::string data = dir_ + "/data";
  Outcome outcome = Run({"prepare", text, "-o", data, "--vocab-size", "280", "--json", "-q"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json prepared = ParseJson(outcome.out, "stdout").value();
  EXPECT_EQ(prepared["vocab_size"], 280);
  EXPECT_EQ(prepared["reused"], false);

  outcome =
      Run({"audit", data, "--world", "3", "--seq", "32", "--seed", "5", "--epoch", "2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json audited = ParseJson(outcome.out, "stdout").value();
  EXPECT_EQ(audited["ok"], true);
  EXPECT_EQ(audited["tokens"], prepared["train"]["tokens"]);
  EXPECT_EQ(audited["seen"], audited["tokens"]);
  EXPECT_EQ(Run({"audit", data, "--split", "val", "--in-order"}).exit_code, 0);

  outcome = Run({"inspect", data, "--verify"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("the 0 sons went to the city\n"), std::string::npos);
  EXPECT_NE(outcome.out.find("280 tokens"), std::string::npos);
}

TEST_F(DataCommandTest, DamageIsOneLineAndExitOne) {
  const std::string text = Write("a.txt", Prose());
  const std::string data = dir_ + "/data";
  ASSERT_EQ(Run({"prepare", text, "-o", data, "--vocab-size", "280"}).exit_code, 0);
  const std::string shard = data + "/train_000000.bin";
  std::string bytes = ReadFile(shard).value();
  bytes[2000] = static_cast<char>(bytes[2000] ^ 1);
  ASSERT_TRUE(WriteFileAtomic(shard, bytes).ok());
  for (const char* command : {"audit", "inspect"}) {
    const Outcome outcome = Run({command, data, command[0] == 'a' ? "--seq=64" : "--verify"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.err.find(shard), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_EQ(Run({"audit", dir_ + "/none"}).exit_code, 1);
}

TEST_F(DataCommandTest, ReadsStandardInput) {
  const std::string text = Write("a.txt", Prose());
  const int in = open(text.c_str(), O_RDONLY);
  const std::string data = dir_ + "/data";
  const Outcome outcome =
      Wait(Start({"prepare", "-", "-o", data, "--vocab-size", "280", "--split-on", "\\n"}, in));
  close(in);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("documents"), std::string::npos);
  // The copy of standard input is gone.
  EXPECT_EQ(ListDir(data).value(),
            (std::vector<std::string>{"manifest.json", "tokenizer.json", "train_000000.bin",
                                      "val_000000.bin"}));
}

TEST_F(DataCommandTest, CtrlCLeavesNoManifest) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const std::string data = dir_ + "/data";
  const pid_t pid = Start({"prepare", "-", "-o", data}, ends[0]);
  // The handler is set before standard input is read; the copy's file says that this has begun.
  const double end = RealClock()->MonotonicSeconds() + kDeadlineSeconds;
  const auto has_copy = [&] {
    const StatusOr<std::vector<std::string>> names = ListDir(data);
    return names.ok() && !names->empty();
  };
  while (!has_copy()) {
    ASSERT_LT(RealClock()->MonotonicSeconds(), end);
    poll(nullptr, 0, 5);
  }
  ASSERT_EQ(write(ends[1], "some text", 9), 9);
  ASSERT_EQ(kill(pid, SIGINT), 0);
  const Outcome outcome = Wait(pid);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("stopped"), std::string::npos) << outcome.err;
  EXPECT_TRUE(ListDir(data).value().empty());
}

}  // namespace
}  // namespace cria::trainer

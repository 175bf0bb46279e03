// Bad input: each mistake ends in one clear line that names the file and the value, exit status 2
// (the user's) or 1 (the world's), and leaves the last good checkpoint intact.

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria {
namespace {

class TrainErrorsTest : public testing::Test {
 protected:
  // Runs, and returns the one line of the error. exit_code 0: 1 or 2, whichever.
  std::string Error(const std::vector<std::string>& args, int exit_code) {
    const Ended ended = RunProcess(args, {.env = {{"XDG_CACHE_HOME", dir_ + "/cache"}}});
    EXPECT_EQ(ended.signal, 0);
    if (exit_code == 0) {
      EXPECT_TRUE(ended.exit_code == 1 || ended.exit_code == 2) << ended.exit_code;
    } else {
      EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    }
    const std::vector<std::string> lines = ErrorLines(ended.err);
    EXPECT_EQ(lines.size(), 1u) << ended.err;
    EXPECT_EQ(ended.err.find("CHECK"), std::string::npos) << ended.err;
    return lines.empty() ? "" : lines[0].substr(std::strlen("cria train: "));
  }
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = JoinPath(dir_, name);
    EXPECT_TRUE(WriteFileAtomic(path, bytes).ok());
    return path;
  }
  // A copy of the prepared data that a test may damage.
  std::string DataCopy() {
    const std::string copy = JoinPath(dir_, "data");
    EXPECT_TRUE(RemoveAll(copy).ok());
    std::filesystem::copy(TinyData(), copy);
    return copy;
  }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string out_ = JoinPath(dir_, "out");
};

void FlipByte(const std::string& path, size_t at) {
  std::string bytes = ReadFile(path).value();
  ASSERT_LT(at, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
}

TEST_F(TrainErrorsTest, HelpAndUnknownFlags) {
  const Ended help = RunProcess({kTrainProgram, "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* flag : {"--set", "--steps", "--out", "--resume", "--plan"}) {
    EXPECT_NE(help.out.find(flag), std::string::npos) << flag;
  }
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--stepz", "3"},
                                               {"--steps", "0"},
                                               {"--steps", "many"},
                                               {"--out"}}) {
    std::vector<std::string> all = {kTrainProgram};
    all.insert(all.end(), args.begin(), args.end());
    const Ended ended = RunProcess(all);
    EXPECT_EQ(ended.exit_code, 2) << args[0];
    EXPECT_NE(ended.err.find(args[0]), std::string::npos) << ended.err;
  }
}

TEST_F(TrainErrorsTest, AMistakeInTheConfigurationIsExitTwo) {
  const std::string typo = Write("typo.yaml", "seed: 1\ntrain:\n  batchh: 3\n");
  EXPECT_EQ(Error({kTrainProgram, typo}, 2),
            typo + ":3: train.batchh: unknown key; did you mean \"batch\"?");
  EXPECT_EQ(Error({kTrainProgram, "--set", "model.layers=-2"}, 2),
            "--set model.layers=-2: model.layers: -2 is out of range [1, 1024]");
  EXPECT_NE(Error({kTrainProgram, "--set", "model.heads=5"}, 2).find("heads"), std::string::npos);
  EXPECT_NE(Error({kTrainProgram, "--set", "precision=fp7"}, 2).find("fp7"), std::string::npos);
  EXPECT_EQ(Error({kTrainProgram, "no_such_job"}, 1),
            "config 'no_such_job': no such file, and no configs/jobs/no_such_job.yaml");
  EXPECT_NE(Error({kTrainProgram, dir_}, 1).find(dir_), std::string::npos);
  EXPECT_FALSE(Exists(out_));
}

TEST_F(TrainErrorsTest, ACorpusThatIsNoTextOrNotThere) {
  const auto with_input = [&](const std::string& path) {
    return std::vector<std::string>{kTrainProgram,
                                    "--out",
                                    out_,
                                    "--steps",
                                    "1",
                                    "--set",
                                    "data.inputs=[\"" + path + "\"]",
                                    "--set",
                                    "data.vocab=300"};
  };
  const std::string missing = JoinPath(dir_, "missing.txt");
  EXPECT_NE(Error(with_input(missing), 1).find(missing), std::string::npos);
  const std::string empty = Write("empty.txt", "");
  EXPECT_NE(Error(with_input(empty), 2).find("prepare"), std::string::npos);
  const std::string one = Write("one.txt", "x");
  EXPECT_NE(Error(with_input(one), 2).find("prepare"), std::string::npos);
  const std::string binary = Write("binary.txt", std::string("ab\0cd", 5) + std::string(1000, 'x'));
  EXPECT_NE(Error(with_input(binary), 2).find(binary), std::string::npos);
  const std::string jsonl = Write("lines.jsonl", "{\"text\": \"a\"}\n{\"other\": 1}\n");
  EXPECT_NE(Error(with_input(jsonl), 2).find(jsonl + ":2"), std::string::npos);
  EXPECT_FALSE(Exists(JoinPath(out_, "config.yaml")));
}

TEST_F(TrainErrorsTest, AVocabularyThatTheDataDoesNotHaveOrTheModelCannotHold) {
  const std::string text = Write("short.txt", "ab ab ab ab\n\ncd cd cd\n");
  const std::string message =
      Error({kTrainProgram, "--out", out_, "--set", "data.inputs=[\"" + text + "\"]", "--set",
             "data.vocab=5000", "--set", "model.vocab=5000", "--steps", "1"},
            2);
  EXPECT_NE(message.find("5000"), std::string::npos) << message;
  EXPECT_EQ(Error(TrainArgs(out_, {"--set", "model.vocab=299"}), 2),
            "model.vocab: 299 is under the tokenizer's 300");
}

TEST_F(TrainErrorsTest, DamagedData) {
  const std::string whole = DataCopy();
  const std::vector<std::string> names = ListDir(whole).value();
  for (const std::string& name : names) {
    const uint64_t bytes = FileSize(JoinPath(whole, name)).value();
    for (const char* damage : {"cut", "flipped", "gone"}) {
      SCOPED_TRACE(StrCat(name, " ", damage));
      const std::string data = DataCopy();
      const std::string path = JoinPath(data, name);
      if (damage[0] == 'c') {
        ASSERT_TRUE(WriteFileAtomic(path, ReadFile(path).value().substr(0, bytes / 2)).ok());
      } else if (damage[0] == 'f') {
        FlipByte(path, bytes / 2);
      } else {
        ASSERT_TRUE(RemoveAll(path).ok());
      }
      const std::string message = Error(TrainArgs(out_, {"--set", "data.path=" + data}), 0);
      EXPECT_NE(message.find(damage[0] == 'g' && name == "manifest.json" ? data : name),
                std::string::npos)
          << message;
      EXPECT_FALSE(Exists(JoinPath(out_, "config.yaml")));
    }
  }
}

TEST_F(TrainErrorsTest, ARunsFolderIsNotOverwritten) {
  ASSERT_EQ(RunProcess(TrainArgs(out_, {"--steps", "2"}, {"train.warmup=1"})).exit_code, 0);
  const std::string metrics = ReadFile(JoinPath(out_, "metrics.jsonl")).value();
  EXPECT_EQ(Error(TrainArgs(out_), 2),
            out_ + " holds a run already: go on with it by --resume auto, or choose another --out");
  EXPECT_EQ(ReadFile(JoinPath(out_, "metrics.jsonl")).value(), metrics);
}

TEST_F(TrainErrorsTest, AResumeThatFailsLeavesTheRunAsItWas) {
  ASSERT_EQ(RunProcess(TrainArgs(out_)).exit_code, 0);
  const std::string config = ReadFile(JoinPath(out_, "config.yaml")).value();
  const std::string metrics = ReadFile(JoinPath(out_, "metrics.jsonl")).value();
  const CheckpointBytes last = ReadCheckpointBytes(StepDir(out_, 10));
  const std::string nowhere = JoinPath(dir_, "nowhere");
  EXPECT_NE(Error({kTrainProgram, "--out", out_, "--resume", nowhere}, 1).find(nowhere),
            std::string::npos);
  EXPECT_NE(Error(TrainArgs(out_, {"--resume", "auto", "--set", "seed=9"}), 2)
                .find("its seed is 1, the job's 9"),
            std::string::npos);
  EXPECT_NE(Error(TrainArgs(out_, {"--resume", "auto", "--set", "model.norm_eps=1e-3"}), 2)
                .find("norm_eps"),
            std::string::npos);
  EXPECT_EQ(ReadFile(JoinPath(out_, "config.yaml")).value(), config);
  EXPECT_EQ(ReadFile(JoinPath(out_, "metrics.jsonl")).value(), metrics);
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(out_, 10)) == last);
}

TEST_F(TrainErrorsTest, AnotherRunsFolderIsNotTaken) {
  const std::string a = JoinPath(dir_, "a"), b = JoinPath(dir_, "b");
  ASSERT_EQ(RunProcess(TrainArgs(a, {}, {"checkpoint.every=5"})).exit_code, 0);
  ASSERT_EQ(RunProcess(TrainArgs(b)).exit_code, 0);
  const std::string metrics = ReadFile(JoinPath(b, "metrics.jsonl")).value();
  EXPECT_EQ(Error({kTrainProgram, "--out", b, "--resume", StepDir(a, 5)}, 2),
            b + " holds a run that " + StepDir(a, 5) + " is not of: choose another --out");
  EXPECT_EQ(ReadFile(JoinPath(b, "metrics.jsonl")).value(), metrics);
  EXPECT_TRUE(Exists(StepDir(b, 10)));
  EXPECT_NE(Error({kTrainProgram, "--resume", JoinPath(dir_, "step_5")}, 2).find("--out"),
            std::string::npos);
}

TEST_F(TrainErrorsTest, ADamagedCheckpointFallsBackToTheOneBefore) {
  const std::string whole = JoinPath(dir_, "whole");
  ASSERT_EQ(RunProcess(TrainArgs(whole, {}, {"checkpoint.every=5"})).exit_code, 0);
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "state.safetensors", "manifest.json"}) {
    SCOPED_TRACE(file);
    ASSERT_TRUE(RemoveAll(out_).ok());
    std::filesystem::copy(whole, out_, std::filesystem::copy_options::recursive);
    const std::string path = JoinPath(StepDir(out_, 10), file);
    FlipByte(path, FileSize(path).value() / 2);
    const Ended ended = RunProcess({kTrainProgram, "--out", out_, "--resume", "auto"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_NE(ended.err.find("passed over " + path), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("going on from " + StepDir(out_, 5)), std::string::npos) << ended.err;
    EXPECT_EQ(MetricsWithoutSpeed(out_), MetricsWithoutSpeed(whole));
    EXPECT_TRUE(ReadCheckpointBytes(StepDir(out_, 10)) == ReadCheckpointBytes(StepDir(whole, 10)));
  }
  // With all damaged, nothing is trained over them.
  FlipByte(JoinPath(StepDir(out_, 10), "manifest.json"), 100);
  FlipByte(JoinPath(StepDir(out_, 5), "manifest.json"), 100);
  EXPECT_NE(Error({kTrainProgram, "--out", out_, "--resume", "auto"}, 1).find("checkpoints"),
            std::string::npos);
  EXPECT_TRUE(Exists(StepDir(out_, 10)));
}

// A file system of its own, for what root may do anywhere else.
class MountTest : public TrainErrorsTest {
 protected:
  void SetUp() override {
    mount_ = JoinPath(dir_, "mount");
    ASSERT_TRUE(MakeDirs(mount_).ok());
  }
  void TearDown() override {
    if (mounted_) umount2(mount_.c_str(), MNT_DETACH);
  }
  // False, with the reason, where this process may not mount.
  bool Mount(const std::string& options, std::string* reason) {
    mounted_ = mount("none", mount_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) *reason = StrCat("needs the right to mount: ", std::strerror(errno));
    return mounted_;
  }

  std::string mount_;
  bool mounted_ = false;
};

TEST_F(MountTest, AFullDiskEndsTheRunAndTheLastCheckpointStays) {
  std::string reason;
  // A checkpoint of this model has about 330 KiB.
  if (!Mount("size=900k", &reason)) GTEST_SKIP() << reason;
  const std::string out = JoinPath(mount_, "run");
  const std::string message = Error(TrainArgs(out, {}, {"checkpoint.every=1"}), 1);
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_NE(message.find(mount_), std::string::npos) << message;
  EXPECT_NE(message.find("save step "), std::string::npos) << message;
  const std::string checkpoints = JoinPath(out, "checkpoints");
  std::vector<std::string> rejected;
  const StatusOr<std::string> newest = trainer::FindNewestVerified(checkpoints, &rejected);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_TRUE(rejected.empty());
  // With room again it goes on, and ends where a run that had room ends.
  ASSERT_EQ(mount("none", mount_.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
  const Ended resumed = RunProcess({kTrainProgram, "--out", out, "--resume", "auto"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  ASSERT_EQ(RunProcess(TrainArgs(out_)).exit_code, 0);
  EXPECT_EQ(MetricsWithoutSpeed(out), MetricsWithoutSpeed(out_));
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(out, 10)) == ReadCheckpointBytes(StepDir(out_, 10)));
}

TEST_F(MountTest, AReadOnlyOutputIsSaidAtOnce) {
  std::string reason;
  if (!Mount("size=1m", &reason)) GTEST_SKIP() << reason;
  ASSERT_EQ(mount("none", mount_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m"), 0);
  const std::string message = Error(TrainArgs(JoinPath(mount_, "run")), 1);
  EXPECT_NE(message.find("Read-only file system"), std::string::npos) << message;
  EXPECT_NE(message.find(JoinPath(mount_, "run")), std::string::npos) << message;
}

TEST_F(TrainErrorsTest, AnOutputBelowAFileIsNamed) {
  const std::string file = Write("file", "x");
  EXPECT_NE(Error(TrainArgs(JoinPath(file, "run")), 1).find(file), std::string::npos);
}

}  // namespace
}  // namespace cria

// cria import, cria export and cria train --init as a user runs them.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria {
namespace {

constexpr char kProgram[] = "trainer/models/import_export";

std::map<std::string, std::string> FilesOf(const std::string& dir) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = ListDir(dir).value();
  for (const std::string& name : names) files[name] = ReadFile(JoinPath(dir, name)).value();
  return files;
}

class ImportExportTest : public testing::Test {
 protected:
  // Exit status 0, or the error's text.
  std::string Run(const std::vector<std::string>& args, int exit_code = 0) {
    std::vector<std::string> all = {kProgram};
    all.insert(all.end(), args.begin(), args.end());
    const Ended ended = RunProcess(all);
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    return exit_code == 0 ? ended.out : ended.err;
  }
  std::string Path(const std::string& name) const { return JoinPath(dir_, name); }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ImportExportTest, HuggingFaceFoldersAndOurGgufComeBackByteForByte) {
  const std::string golden = "tests/golden/tied_headdim";
  EXPECT_NE(Run({"import", "hf", golden, "--out", Path("a")}).find("1 file of weights"),
            std::string::npos);
  Run({"export", "hf", Path("a"), "--out", Path("b")});
  EXPECT_EQ(FilesOf(Path("b")), FilesOf(Path("a")));
  EXPECT_EQ(FilesOf(Path("b"))["model.safetensors"],
            ReadFile(JoinPath(golden, "model.safetensors")).value());
  for (const char* dtype : {"f32", "f16", "bf16", "q8_0"}) {
    const std::string first = Path(StrCat(dtype, ".gguf")), folder = Path(StrCat(dtype, ".hf")),
                      second = Path(StrCat(dtype, ".2.gguf"));
    Run({"export", "gguf", golden, "--dtype", dtype, "--out", first});
    Run({"import", "gguf", first, "--out", folder});
    Run({"export", "gguf", folder, "--dtype", dtype, "--out", second});
    EXPECT_EQ(ReadFile(second).value(), ReadFile(first).value()) << dtype;
  }
}

TEST_F(ImportExportTest, MistakesAreExitTwoAndLeaveNothing) {
  const std::string golden = "tests/golden/gqa_llama31";
  ASSERT_TRUE(MakeDirs(Path("taken")).ok());
  struct Mistake {
    std::vector<std::string> args;
    std::string said;
    int exit_code;
  };
  const std::string out = Path("out");
  for (const Mistake& m : std::vector<Mistake>{
           {{"import", "onnx", golden, "--out", out}, "onnx", 2},
           {{"import", "hf", golden}, "--out", 2},
           {{"import", "gguf", golden, "--out", out}, "is of the format hf, not gguf", 2},
           {{"import", "hf", golden, "--out", out, "--rope-factor", "8"}, "--rope-factor", 2},
           {{"import", "hf", golden, "--out", Path("taken")}, "taken exists already", 2},
           {{"export", "gguf", golden, "--out", Path("taken")}, "taken exists already", 2},
           {{"export", "hf", golden, "--out", out, "--dtype", "q8_0"}, "f32, f16 or bf16", 2},
           {{"export", "hf", golden, "--out", out, "--dtype", "int3"}, "int3", 2},
           {{"export", "hf", golden, "--out", out, "--max-shard-size", "5XB"}, "5XB", 2},
           {{"export", "gguf", golden, "--out", out, "--max-shard-size", "5GB"}, "not split", 2},
           {{"export", "hf", Path("gone"), "--out", out}, "gone", 1},
           {{"frobnicate"}, "subcommand", 2},
           {{}, "subcommand", 2}}) {
    const std::string err = Run(m.args, m.exit_code);
    EXPECT_NE(err.find(m.said), std::string::npos) << m.said << " in: " << err;
  }
  EXPECT_EQ(ListDir(dir_).value(), std::vector<std::string>{"taken"});
  for (const std::vector<std::string>& help :
       {std::vector<std::string>{"--help"}, {"import", "--help"}, {"export", "--help"}}) {
    EXPECT_NE(Run(help).find("cria"), std::string::npos);
  }
}

double FirstLoss(const std::string& run) {
  const std::vector<std::string> lines = ReadLines(JoinPath(run, "metrics.jsonl"));
  if (lines.empty()) return -1;
  return JsonGet<double>(ParseJson(lines[0], run).value(), "loss", run).value();
}

// A run, its export in two formats: three sources of one model give one first loss.
TEST_F(ImportExportTest, TrainStartsFromARunAndFromItsExports) {
  const std::string run = Path("run");
  ASSERT_EQ(RunProcess(TrainArgs(run)).exit_code, 0);
  Run({"export", "hf", run, "--out", Path("hf")});
  Run({"export", "gguf", run, "--out", Path("model.gguf")});
  std::vector<double> losses;
  const std::vector<std::string> job = {"--steps", "2", "--set", "seed=7"};
  for (const char* source : {"run", "hf", "model.gguf"}) {
    const std::string out = Path(StrCat("from-", source));
    std::vector<std::string> args = TrainArgs(out, {"--init", Path(source)});
    args.insert(args.end(), job.begin(), job.end());
    const Ended ended = RunProcess(args);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_NE(ReadFile(JoinPath(out, "config.yaml")).value().find(Path(source)), std::string::npos);
    losses.push_back(FirstLoss(out));
  }
  std::vector<std::string> args = TrainArgs(Path("random"));
  args.insert(args.end(), job.begin(), job.end());
  ASSERT_EQ(RunProcess(args).exit_code, 0);
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
  EXPECT_LT(losses[0], FirstLoss(Path("random")) - 0.3);

  // It goes on without its source.
  ASSERT_TRUE(RemoveAll(Path("hf")).ok());
  const Ended resumed =
      RunProcess({kTrainProgram, "--out", Path("from-hf"), "--resume", "auto", "--steps", "3"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(ReadLines(Path("from-hf/metrics.jsonl")).size(), 3u);
}

TEST_F(ImportExportTest, TrainRefusesAnInitThatContradictsTheJob) {
  const std::string run = Path("run");
  ASSERT_EQ(RunProcess(TrainArgs(run)).exit_code, 0);
  const auto error = [&](const std::vector<std::string>& args) {
    const Ended ended = RunProcess(args);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    const std::vector<std::string> lines = ErrorLines(ended.err);
    return lines.size() == 1 ? lines[0] : StrCat(lines.size(), " lines: ", ended.err);
  };
  const std::string out = Path("out");
  const std::string sizes = error(TrainArgs(out, {"--init", run}, {"model.layers=5"}));
  EXPECT_NE(sizes.find("model.layers: 5"), std::string::npos) << sizes;
  EXPECT_NE(sizes.find("has 2"), std::string::npos) << sizes;
  const std::string both = error({kTrainProgram, "--init", run, "--resume", StepDir(run, 10)});
  EXPECT_NE(both.find("--resume"), std::string::npos) << both;
  const std::string none =
      error({kTrainProgram, "--init", "tests/golden/mha_linear", "--out", out});
  EXPECT_NE(none.find("no tokenizer"), std::string::npos) << none;
  EXPECT_FALSE(Exists(out));
}

}  // namespace
}  // namespace cria

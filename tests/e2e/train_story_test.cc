// From a text file to a model that writes like it, by the one command: prepare, train, stop, go on,
// sample. The words are few, so a model of 30,000 parameters learns them in seconds.

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria {
namespace {

TEST(TrainStoryTest, FromTextToSamples) {
  const std::string dir = FreshDir("story");
  const std::string text = JoinPath(dir, "llamas.txt");
  const std::string words = TinyText(1200);
  ASSERT_TRUE(WriteFileAtomic(text, words).ok());
  const ProcessOptions options = {.env = {{"XDG_CACHE_HOME", JoinPath(dir, "cache")}}};
  const std::string out = JoinPath(dir, "run");
  std::vector<std::string> args = {kTrainProgram, "--out", out};
  std::vector<std::string> settings = TinySettings("");
  for (const char* more :
       {"steps=400", "train.eval_every=100", "data.vocab=300", "tensorboard=true",
        "sample.prompts=[\"the llama\", \"a small cria\"]", "sample.tokens=20",
        "sample.temperature=0", "checkpoint.every=100", "checkpoint.keep=2"}) {
    settings.push_back(more);
  }
  settings.push_back("data.inputs=[\"" + text + "\"]");
  for (const std::string& setting : settings) args.insert(args.end(), {"--set", setting});

  const Ended ended = RunProcess(args, options);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* what : {"parameters ", "memory:", "MFU is a share of", "tokens to train on",
                           "400 steps", "validation", "samples (temperature 0):"}) {
    EXPECT_NE(ended.out.find(what), std::string::npos) << what << " in\n" << ended.out;
  }
  EXPECT_NE(ended.err.find("step 400/400"), std::string::npos) << ended.err;

  // It learned: below 60 % of the first loss, on text that it had not seen as well.
  const std::vector<std::string> lines = ReadLines(JoinPath(out, "metrics.jsonl"));
  ASSERT_EQ(lines.size(), 400u);
  const Json begin = ParseJson(lines.front(), "first line").value();
  const Json end = ParseJson(lines.back(), "last line").value();
  EXPECT_LT(end["loss"].get<double>(), 0.6 * begin["loss"].get<double>());
  EXPECT_LT(end["val_loss"].get<double>(), 0.6 * begin["loss"].get<double>());
  EXPECT_GT(end["tokens_per_s"].get<double>(), 0);
  EXPECT_GT(end["mfu"].get<double>(), 0);

  // What it writes has the corpus's words.
  std::istringstream corpus(words);
  std::set<std::string> known;
  for (std::string word; corpus >> word;) known.insert(word);
  std::istringstream samples(ended.out.substr(ended.out.find("samples (temperature 0):") + 24));
  int num_words = 0, num_known = 0;
  for (std::string word; samples >> word; ++num_words) num_known += known.contains(word);
  EXPECT_GT(num_words, 8) << ended.out;
  EXPECT_GE(num_known, num_words * 3 / 4) << ended.out;

  for (const char* file :
       {"config.yaml", "tokenizer.json", "metrics.jsonl", "tensorboard",
        "checkpoints/step_300/manifest.json", "checkpoints/step_400/model.safetensors"}) {
    EXPECT_TRUE(Exists(JoinPath(out, file))) << file;
  }
  EXPECT_FALSE(Exists(StepDir(out, 200)));  // keep = 2

  // More steps of the same run: the data is not prepared again, the configuration is the run's own.
  const Ended more =
      RunProcess({kTrainProgram, "--out", out, "--resume", "auto", "--steps", "410"}, options);
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(more.err.find("train a tokenizer"), std::string::npos) << more.err;
  EXPECT_EQ(ReadLines(JoinPath(out, "metrics.jsonl")).size(), 410u);
}

}  // namespace
}  // namespace cria

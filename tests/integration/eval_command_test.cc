// `cria eval` as a user runs it, on a tiny run.

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria {
namespace {

constexpr char kEval[] = "trainer/eval/eval";

// A trained run, made once.
const std::string& TheRun() {
  static const std::string* const dir = [] {
    auto* out = new std::string(FreshDir("run"));
    const TinyOutcome outcome = RunTiny(TinyConfig(TinyData()), {.out_dir = *out});
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    // As `cria train` leaves it.
    EXPECT_TRUE(WriteFileAtomic(JoinPath(*out, "tokenizer.json"),
                                *ReadFile(JoinPath(TinyData(), "tokenizer.json")))
                    .ok());
    return out;
  }();
  return *dir;
}

double ValLoss() {
  const std::vector<std::string> lines = ReadLines(JoinPath(TheRun(), "metrics.jsonl"));
  return ParseJson(lines.back(), "metrics")->at("val_loss").get<double>();
}

Ended Eval(const std::vector<std::string>& args) {
  std::vector<std::string> all = {kEval};
  all.insert(all.end(), args.begin(), args.end());
  return RunProcess(all);
}

// The object that it prints, or null.
Json EvalJson(std::vector<std::string> args) {
  args.insert(args.end(), {"--json", "--quiet"});
  const Ended ended = Eval(args);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  const StatusOr<Json> json = ParseJson(ended.out, "eval --json");
  EXPECT_TRUE(json.ok()) << json.status() << ended.out;
  return json.ok() ? *json : Json();
}

std::string FileOf(const std::string& name, const std::string& text) {
  const std::string path = JoinPath(FreshDir("file_" + name), name);
  EXPECT_TRUE(WriteFileAtomic(path, text).ok());
  return path;
}

TEST(EvalCommandTest, ARunIsEvaluatedOnItsOwnValidationData) {
  const Json json = EvalJson({TheRun()});
  EXPECT_NEAR(json["loss"].get<double>(), ValLoss(), 1e-12);
  EXPECT_EQ(json["task"], "loss");
  EXPECT_EQ(json["format"], "run");
  EXPECT_EQ(json["seq"], 32);
  EXPECT_EQ(json["stride"], 32);
  EXPECT_EQ(json["precision"], "fp32");
  EXPECT_GT(json["tokens"].get<int64_t>(), 50);
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(json["loss"].get<double>()), 1e-9);
  EXPECT_NEAR(json["bits_per_byte"].get<double>(),
              json["loss"].get<double>() * json["tokens"].get<double>() / std::log(2.0) /
                  json["bytes"].get<double>(),
              1e-9);
  // The same by name, and of the checkpoint itself.
  const Json named = EvalJson({TheRun(), "--data", TinyData(), "--batch", "1"});
  EXPECT_NEAR(named["loss"].get<double>(), ValLoss(), 1e-12);
  const Json step = EvalJson({StepDir(TheRun(), 10), "--data", TinyData()});
  EXPECT_NEAR(step["loss"].get<double>(), ValLoss(), 1e-12);
}

TEST(EvalCommandTest, StrideGivesMoreContextToTheSameTokens) {
  const Json plain = EvalJson({TheRun(), "--data", TinyData(), "--seq", "16"});
  const Json strided = EvalJson({TheRun(), "--data", TinyData(), "--seq", "16", "--stride", "4"});
  EXPECT_EQ(plain["tokens"], strided["tokens"]);
  EXPECT_EQ(plain["bytes"], strided["bytes"]);
  EXPECT_NE(plain["loss"], strided["loss"]);
  const Json some = EvalJson({TheRun(), "--data", TinyData(), "--max-tokens", "40"});
  EXPECT_LE(some["tokens"].get<int64_t>(), 40);
  EXPECT_GT(some["tokens"].get<int64_t>(), 20);
}

TEST(EvalCommandTest, TextIsEvaluatedAsPreparedDataOfTheSameTextIs) {
  const std::string text = "the llama watches the river.\nshe waits for grass.\n";
  const std::string path = FileOf("a.txt", text);
  const Json json = EvalJson({TheRun(), "--text", path});
  EXPECT_EQ(json["bytes"], text.size());
  const Ended piped = RunProcess(
      {"/bin/sh", "-c", StrCat("cat '", path, "' | ", kEval, " '", TheRun(), "' --text - --json")});
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(ParseJson(piped.out, "piped")->at("loss"), json["loss"]);
  const std::string jsonl = FileOf("a.jsonl", "{\"body\": " + Json(text).dump() + "}\n");
  const Json same = EvalJson({TheRun(), "--text", jsonl, "--field", "body"});
  EXPECT_EQ(same["loss"], json["loss"]);
  // Two documents, each with its own begin and end.
  const Json two = EvalJson({TheRun(), "--text", path, "--split-on", ".\n"});
  EXPECT_LT(two["bytes"].get<size_t>(), text.size());
  EXPECT_NE(two["loss"], json["loss"]);
}

TEST(EvalCommandTest, QuestionsGiveAccuracies) {
  const std::string questions = FileOf(
      "q.jsonl",
      "{\"context\": \"the llama\", \"choices\": [\"watches the river.\", \"zzzz qqq\"], "
      "\"answer\": 0}\n{\"ctx\": \"she\", \"endings\": [\"xqzv\", \"waits for grass.\", \"!!\"], "
      "\"label\": \"1\"}\n");
  const std::string details = JoinPath(FreshDir("details"), "d.jsonl");
  const Json json = EvalJson({TheRun(), "--choices", questions, "--details", details});
  EXPECT_EQ(json["task"], "choices");
  EXPECT_EQ(json["n"], 2);
  EXPECT_EQ(json["truncated"], 0);
  for (const char* key : {"acc", "acc_norm", "acc_norm_token"}) {
    EXPECT_GE(json[key].get<double>(), 0) << key;
    EXPECT_LE(json[key].get<double>(), 1) << key;
    EXPECT_TRUE(json.contains(StrCat(key, "_stderr")));
  }
  const std::vector<std::string> lines = ReadLines(details);
  ASSERT_EQ(lines.size(), 2u);
  const Json first = *ParseJson(lines[0], details);
  EXPECT_EQ(first["log_probs"].size(), 2u);
  EXPECT_LT(first["log_probs"][0].get<double>(), 0);
  EXPECT_EQ(first["characters"][0], 18);
  // One question at a time, and in passes that cut contexts: the same numbers.
  const std::string again = JoinPath(FreshDir("again"), "d.jsonl");
  EvalJson({TheRun(), "--choices", questions, "--details", again, "--batch", "1"});
  EXPECT_EQ(ReadLines(again), lines);
  const Json one = EvalJson({TheRun(), "--choices", questions, "--limit", "1"});
  EXPECT_EQ(one["n"], 1);
  EXPECT_TRUE(one["acc_stderr"].is_null());
  const Json long_question = {{"context", TinyText(20)}, {"choices", {"a", "b"}}, {"answer", 1}};
  const std::string long_file = FileOf("long.jsonl", *DumpJson(long_question) + "\n");
  EXPECT_EQ(EvalJson({TheRun(), "--choices", long_file})["truncated"], 1);
}

TEST(EvalCommandTest, PeopleGetALineOfNumbers) {
  const Ended ended = Eval({TheRun(), "--data", TinyData(), "--quiet"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(ended.out.starts_with("loss ")) << ended.out;
  EXPECT_NE(ended.out.find("perplexity"), std::string::npos);
  EXPECT_NE(ended.out.find("bits per byte"), std::string::npos);
}

struct Mistake {
  std::vector<std::string> args;
  int exit_code;
  std::vector<std::string> says;
};

TEST(EvalCommandTest, MistakesAreNamedWithTheirValues) {
  const std::string bad = FileOf("bad.jsonl", "{\"context\": \"a\"}\n");
  const std::string empty = FileOf("empty.txt", "");
  const std::vector<Mistake> mistakes = {
      {{}, 2, {"model"}},
      {{"/no/such/model"}, 1, {"/no/such/model"}},
      {{TheRun(), "--data", "/no/such/data"}, 1, {"/no/such/data"}},
      {{TheRun(), "--data", TinyData(), "--text", empty}, 2, {"one of the three"}},
      {{TheRun(), "--data", TinyData(), "--split", "test"}, 2, {"test"}},
      {{TheRun(), "--text", empty}, 2, {empty}},
      {{TheRun(), "--data", empty}, 1, {empty}},
      {{TheRun(), "--seq", "65"}, 2, {"--seq 65", "64 positions"}},
      {{TheRun(), "--seq", "16", "--stride", "17"}, 2, {"--stride 17", "16"}},
      {{TheRun(), "--stride", "0"}, 2, {"stride"}},
      {{TheRun(), "--precision", "fp8"}, 2, {"fp8"}},
      {{TheRun(), "--choices", bad}, 2, {bad + ":1", "choices"}},
      {{TheRun(), "--choices", "/no/file"}, 1, {"/no/file"}},
      // A model without its own data: a folder of Hugging Face's.
      {{"tests/golden/mha_linear"}, 2, {"--data PATH, --text FILE or --choices FILE"}},
      {{"tests/golden/mha_linear", "--text", bad}, 2, {"no tokenizer", "--tokenizer"}},
      {{"tests/golden/gqa_llama31", "--data", TinyData()}, 2, {"300 tokens", "has 128"}},
  };
  for (const Mistake& mistake : mistakes) {
    const Ended ended = Eval(mistake.args);
    EXPECT_EQ(ended.exit_code, mistake.exit_code) << ended.err;
    EXPECT_EQ(ended.out, "");
    for (const std::string& text : mistake.says) {
      EXPECT_NE(ended.err.find(text), std::string::npos) << text << "\nnot in: " << ended.err;
    }
  }
}

}  // namespace
}  // namespace cria

// transformers' logits give the figures of `cria eval`: loss with and without a stride, and the
// accuracies of lm-evaluation-harness, on an exported tiny run.

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "tests/peers/peer_python.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/models/hf_writer.h"
#include "trainer/models/model_files.h"

namespace cria {
namespace {

// Forty questions of our own words: two to four choices, contexts of one to sixty words, some
// longer than the model's 64 positions, some that end in white space.
std::string Questions() {
  const Rng rng(5, StreamOf("eval peer questions"));
  uint64_t draw = 0;
  std::string lines;
  for (int q = 0; q < 40; ++q) {
    std::string context = TinyText(1 + static_cast<int64_t>(rng.Below(draw++, q % 5 == 0 ? 12 : 2)),
                                   1000 + static_cast<uint64_t>(q));
    context.resize(context.find_last_not_of('\n') + 1);
    if (q % 4 == 1) context += q % 8 == 1 ? " " : "\n\t ";
    Json choices = Json::array();
    const uint64_t num_choices = 2 + rng.Below(draw++, 3);
    for (uint64_t c = 0; c < num_choices; ++c) {
      std::string choice = TinyText(1, 5000 + 10 * static_cast<uint64_t>(q) + c);
      choice.resize(1 + rng.Below(draw++, choice.size() - 2));
      choices.push_back(c == 1 ? choice + " caf\xc3\xa9" : choice);
    }
    Json line = {{"context", context}, {"choices", choices}};
    line["answer"] = rng.Below(draw++, num_choices);
    lines += *DumpJson(line) + "\n";
  }
  return lines;
}

Json EvalJson(std::vector<std::string> args) {
  args.insert(args.begin(), "trainer/eval/eval");
  args.insert(args.end(), {"--json", "--quiet"});
  const Ended ended = RunProcess(args);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const StatusOr<Json> json = ParseJson(ended.out, "eval --json");
  return json.ok() ? *json : Json();
}

TEST(EvalPeerTest, TransformersLogitsGiveTheSameLossAndAccuracies) {
  trainer::TrainConfig config = TinyConfig(TinyData());
  config.steps = 60;
  const std::string run = FreshDir("run");
  const TinyOutcome outcome = RunTiny(config, {.out_dir = run});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  // As `cria train` leaves it.
  ASSERT_TRUE(WriteFileAtomic(JoinPath(run, "tokenizer.json"),
                              *ReadFile(JoinPath(TinyData(), "tokenizer.json")))
                  .ok());
  const std::string root = FreshDir("peer");
  const std::string model = JoinPath(root, "model");
  const auto files = trainer::OpenModel(run);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto written = WriteHfModel(*files, model, {});
  ASSERT_TRUE(written.ok()) << written.status();
  const std::string text = JoinPath(root, "text.txt"), questions = JoinPath(root, "q.jsonl");
  ASSERT_TRUE(WriteFileAtomic(text, TinyText(12, 77) + "caf\xc3\xa9 \xf0\x9f\xa6\x99\r\n").ok());
  ASSERT_TRUE(WriteFileAtomic(questions, Questions()).ok());

  for (const char* stride : {"32", "9"}) {
    const auto out = RunPeer("tests/peers/eval_peer.py", {model, text, questions, "32", stride});
    if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
    ASSERT_TRUE(out.ok()) << out.status();
    const StatusOr<Json> peer = ParseJson(*out, "eval_peer.py");
    ASSERT_TRUE(peer.ok()) << peer.status() << *out;

    const Json loss = EvalJson({model, "--text", text, "--seq", "32", "--stride", stride});
    const double want = peer->at("loss").get<double>();
    EXPECT_NEAR(loss["loss"].get<double>(), want, 1e-5 * want);
    EXPECT_EQ(loss["tokens"], peer->at("tokens"));
    EXPECT_EQ(loss["bytes"], peer->at("bytes"));

    const std::string details = JoinPath(root, "details.jsonl");
    const Json accuracy = EvalJson({model, "--choices", questions, "--details", details});
    EXPECT_EQ(accuracy["acc"], peer->at("acc"));
    EXPECT_EQ(accuracy["acc_norm"], peer->at("acc_norm"));
    EXPECT_GT(accuracy["truncated"].get<int64_t>(), 0) << "no question was too long";
    EXPECT_LT(accuracy["truncated"].get<int64_t>(), 20);
    const std::vector<std::string> lines = ReadLines(details);
    const Json& scores = peer->at("log_probs");
    ASSERT_EQ(lines.size(), scores.size());
    for (size_t q = 0; q < lines.size(); ++q) {
      const Json ours = ParseJson(lines[q], details)->at("log_probs");
      ASSERT_EQ(ours.size(), scores[q].size());
      for (size_t c = 0; c < ours.size(); ++c) {
        const double theirs = scores[q][c].get<double>();
        EXPECT_NEAR(ours[c].get<double>(), theirs, 1e-5 * std::abs(theirs)) << q << " " << c;
      }
    }
  }
}

}  // namespace
}  // namespace cria

// `cria generate` as a user runs it, on models whose next token is known.

#include <gtest/gtest.h>
#include <signal.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "tests/support/process.h"
#include "tests/unit/trainer/generate/byte_tokenizer.h"
#include "tests/unit/trainer/generate/markov_folder.h"
#include "tests/unit/trainer/generate/markov_model.h"

namespace cria::trainer {
namespace {

constexpr char kProgram[] = "trainer/generate/generate";

Ended Generate(std::vector<std::string> args) {
  args.insert(args.begin(), kProgram);
  return RunProcess(args);
}

// With `input` on standard input.
Ended Pipe(const std::string& input, const std::string& args) {
  const std::string file = JoinPath(FreshDir("stdin"), "input");
  EXPECT_TRUE(WriteFileAtomic(file, input).ok());
  return RunProcess({"/bin/sh", "-c", StrCat("exec ", kProgram, " ", args, " < ", file)});
}

Json Parsed(const Ended& ended) {
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto json = ParseJson(ended.out, "output");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

const std::string& Alphabet() {
  static const std::string* const dir =
      new std::string(WriteMarkovFolder("alphabet", AlphabetLogit, {}));
  return *dir;
}

// Any letter may follow.
const std::string& Babble() {
  static const std::string* const dir = new std::string(WriteMarkovFolder(
      "babble",
      [](int32_t from, int32_t to) {
        return to >= 'a' && to <= 'z' ? static_cast<float>((from * 7 + to * 3) % 11) / 5 : -20.0f;
      },
      {}));
  return *dir;
}

TEST(GenerateTest, PrintsTheTextAloneAndTheSpeedOnStandardError) {
  const Ended ended = Generate({Alphabet(), "--prompt", "abc", "--max-tokens", "5"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "defgh\n");
  EXPECT_EQ(ended.err.rfind("prompt: 4 tokens in ", 0), 0u) << ended.err;  // with begin-of-text
  EXPECT_NE(ended.err.find("decoding: 4 tokens in "), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("tokens/s"), std::string::npos) << ended.err;
  EXPECT_EQ(Generate({Alphabet(), "--prompt", "abc", "-n", "5", "--quiet"}).err, "");
}

TEST(GenerateTest, PrintsManyPromptsInOrderUnderHeaders) {
  const Ended ended =
      Generate({Alphabet(), "-p", "ab", "-p", "x", "-p", "[g,h]", "-n", "3", "-q", "--batch", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out,
            "--- prompt 1 of 3: ab\ncde\n--- prompt 2 of 3: x\nyza\n"
            "--- prompt 3 of 3: [g,h]\nabc\n");
}

TEST(GenerateTest, JsonIsAListWithIdsTextAndReason) {
  const Json json = Parsed(Generate({Alphabet(), "--prompt", "ab", "--prompt-ids", "120,121",
                                     "--max-tokens", "4", "--stop", "ef", "--json"}));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0], (Json{{"prompt", "ab"},
                           {"prompt_ids", {kByteBos, 'a', 'b'}},
                           {"ids", {'c', 'd', 'e', 'f'}},
                           {"text", "cd"},
                           {"finish_reason", "stop"}}));
  EXPECT_EQ(json[1], (Json{{"prompt_ids", {'x', 'y'}},
                           {"ids", {'z', 'a', 'b', 'c'}},
                           {"text", "zabc"},
                           {"finish_reason", "length"}}));
}

TEST(GenerateTest, ReadsPromptsFromFilesAndStandardInput) {
  // All of standard input is one prompt, but for its last line break.
  Json json = Parsed(Pipe("two\nlines\n", Alphabet() + " --prompt - -n 1 --json"));
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["prompt"], "two\nlines");
  EXPECT_EQ(json[0]["text"], "t");
  const std::string dir = FreshDir("prompt_files");
  ASSERT_TRUE(WriteFileAtomic(JoinPath(dir, "p.txt"), "ab\n\nxy\n").ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(dir, "p.jsonl"),
                              "{\"prompt\": \"k\\nl\"}\n{\"prompt_ids\": [100]}\n")
                  .ok());
  json = Parsed(Generate({Alphabet(), "--prompts", JoinPath(dir, "p.txt"), "--prompts",
                          JoinPath(dir, "p.jsonl"), "-n", "1", "--json"}));
  std::vector<std::string> texts;
  for (const Json& entry : json) texts.push_back(entry["text"]);
  EXPECT_EQ(texts, (std::vector<std::string>{"c", "z", "m", "e"}));
}

TEST(GenerateTest, TakesBosFromTheTemplateUnlessToldOtherwise) {
  const auto ids = [](std::vector<std::string> more) {
    std::vector<std::string> args = {Alphabet(), "-n", "1", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return Parsed(Generate(args))[0]["prompt_ids"].get<std::vector<int32_t>>();
  };
  EXPECT_EQ(ids({"--prompt", "a"}), (std::vector<int32_t>{kByteBos, 'a'}));
  EXPECT_EQ(ids({"--prompt", "a", "--no-bos"}), (std::vector<int32_t>{'a'}));
  EXPECT_EQ(ids({"--prompt", ""}), (std::vector<int32_t>{kByteBos}));
  // Special tokens in a text are text, unless asked for.
  EXPECT_EQ(ids({"--prompt", "<|eot_id|>"}).size(), 11u);
  EXPECT_EQ(ids({"--prompt", "<|eot_id|>", "--parse-special"}),
            (std::vector<int32_t>{kByteBos, kByteEot}));
}

TEST(GenerateTest, EndsAtEosAndShowsItWhenAsked) {
  const std::string dir = WriteMarkovFolder("with_end",
                                            [](int32_t from, int32_t to) {
                                              return from == 'd' ? (to == kByteEos ? 9.0f : 0.0f)
                                                                 : AlphabetLogit(from, to);
                                            },
                                            {});
  const Json json = Parsed(Generate({dir, "--prompt", "a", "--json"}));
  EXPECT_EQ(json[0]["text"], "bcd");
  EXPECT_EQ(json[0]["ids"], (Json{'b', 'c', 'd', kByteEos}));
  EXPECT_EQ(json[0]["finish_reason"], "eos");
  EXPECT_EQ(Generate({dir, "-p", "a", "-q", "--special"}).out, "bcd<|end_of_text|>\n");
  EXPECT_EQ(Generate({dir, "-p", "a", "-q", "--ignore-eos", "-n", "6"}).out, "bcdab\n");
}

TEST(GenerateTest, TheSameSeedGivesTheSameTextAndAnotherAnother) {
  const auto text = [](const std::string& seed, const std::string& batch) {
    return Generate({Babble(), "-p", "a", "-p", "a", "-p", "b", "--temperature", "1", "--seed",
                     seed, "--batch", batch, "-n", "30", "-q"})
        .out;
  };
  const std::string first = text("1", "1");
  EXPECT_EQ(text("1", "1"), first);
  EXPECT_EQ(text("1", "3"), first);
  EXPECT_NE(text("2", "1"), first);
}

TEST(GenerateTest, SamplingOptionsReachTheSampler) {
  const auto text = [](std::vector<std::string> more) {
    std::vector<std::string> args = {Babble(), "-p", "a", "-n", "20", "-q"};
    args.insert(args.end(), more.begin(), more.end());
    const Ended ended = Generate(args);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  };
  const std::string greedy = text({});
  const std::vector<std::string> hot = {"--temperature", "5", "--seed", "3"};
  EXPECT_NE(text(hot), greedy);
  // Each of them alone leaves the most likely token only, where no two are equal.
  for (const std::vector<std::string>& cut :
       {std::vector<std::string>{"--top-p", "0"}, {"--temperature", "0.001"}}) {
    std::vector<std::string> args = hot;
    args.insert(args.end(), cut.begin(), cut.end());
    if (cut[0] == "--temperature")
      args = {"--temperature", "0.001", "--top-k", "1", "--top-p", "0"};
    EXPECT_EQ(text(args), greedy);
  }
  EXPECT_NE(text({"--temperature", "5", "--seed", "3", "--top-k", "3"}), text(hot));
  EXPECT_NE(text({"--temperature", "5", "--seed", "3", "--min-p", "0.8"}), text(hot));
  EXPECT_NE(text({"--repetition-penalty", "1.5"}), greedy);
}

TEST(GenerateTest, RunsInBothPrecisions) {
  for (const std::string precision : {"fp32", "bf16", "auto"}) {
    const Ended ended =
        Generate({Alphabet(), "-p", "ab", "-n", "4", "--precision", precision, "--verbose"});
    EXPECT_EQ(ended.out, "cdef\n");
    EXPECT_NE(ended.err.find(precision == "bf16" ? "as bf16;" : "as f32;"), std::string::npos)
        << ended.err;
  }
}

TEST(GenerateTest, ErrorsSayWhatAndExitWithTheirCode) {
  const std::string no_tokenizer =
      WriteMarkovFolder("no_tokenizer", AlphabetLogit, {.has_tokenizer = false});
  const std::string long_prompt(70, 'a');
  struct Case {
    std::vector<std::string> args;
    int code;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {{"/no/such/model", "-p", "a"}, 1, "/no/such/model"},
           {{Alphabet()}, 2, "no prompt"},
           {{}, 2, "MODEL"},
           {{Alphabet(), "-p", long_prompt},
            2,
            "prompt 1 has 71 tokens; the model has 64 positions"},
           {{Alphabet(), "-p", long_prompt, "--max-seq", "40"},
            2,
            "prompt 1 has 71 tokens; --max-seq is 40"},
           {{Alphabet(), "-p", "a", "--max-seq", "65"},
            2,
            "--max-seq 65: the model has 64 positions"},
           {{Alphabet(), "-p", "a", "--temperature", "-1"}, 2, "temperature -1: must be 0 or more"},
           {{Alphabet(), "-p", "a", "--temperature", "warm"}, 2, "--temperature"},
           {{Alphabet(), "-p", "a", "--top-p", "1.5"}, 2, "top-p 1.5: must be in [0, 1]"},
           {{Alphabet(), "-p", "a", "--top-k", "-3"}, 2, "top-k -3"},
           {{Alphabet(), "-p", "a", "--max-tokens", "-1"}, 2, "--max-tokens"},
           {{Alphabet(), "-p", "a", "--batch", "0"}, 2, "--batch"},
           {{Alphabet(), "-p", "a", "--precision", "fp8"}, 2, "fp8"},
           {{Alphabet(), "-p", "a", "--stop", ""}, 2, "a stop string is empty"},
           {{Alphabet(), "--prompt-ids", "1,x"}, 2, "--prompt-ids: \"x\" is not an id"},
           {{Alphabet(), "--prompt-ids", "1,999"}, 2, "prompt 1, token 1: id 999"},
           {{Alphabet(), "--prompt", "", "--no-bos"}, 2, "prompt 1 has no tokens"},
           {{Alphabet(), "--prompts", "/no/such/file"}, 1, "/no/such/file"},
           {{Alphabet(), "-p", "a", "--system", "x"}, 2, "--chat"},
           {{Alphabet(), "-p", "a", "--chat"}, 2, "the model has no chat template"},
           {{no_tokenizer, "-p", "a"}, 2, "the model has no tokenizer"},
           {{no_tokenizer, "-p", "a", "--chat"}, 2, "the model has no tokenizer"}}) {
    const Ended ended = Generate(c.args);
    SCOPED_TRACE(c.message);
    EXPECT_EQ(ended.exit_code, c.code) << ended.err;
    EXPECT_NE(ended.err.find(c.message), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
  EXPECT_EQ(Generate({no_tokenizer, "--prompt-ids", "97", "-n", "2", "--json"}).exit_code, 0);
}

TEST(GenerateTest, AFullDiskIsAnError) {
  const Ended ended =
      RunProcess({"/bin/sh", "-c", StrCat(kProgram, " ", Alphabet(), " -p a -n 3 > /dev/full")});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_NE(ended.err.find("write to standard output"), std::string::npos) << ended.err;
}

// A text that would take minutes: an interrupt ends it, with what there is.
TEST(GenerateTest, AnInterruptEndsTheTextCleanly) {
  const std::string dir = WriteMarkovFolder("endless", AlphabetLogit, {.max_positions = 400'000});
  const std::string out = JoinPath(FreshDir("interrupt"), "out");
  for (const std::string format : {"", " --json"}) {
    Process process(
        {"/bin/sh", "-c",
         StrCat("exec ", kProgram, " ", dir, " -p ab -n 400000 -v", format, " > ", out)});
    // The text streams; JSON comes at the end, so there the loaded model is what to wait for.
    ASSERT_TRUE(WaitUntil([&] {
      const auto size = FileSize(out);
      return process.ended() ||
             (format.empty() ? size.ok() && *size > 100 : !process.err().empty());
    }));
    process.Signal(SIGINT);
    const Ended ended = process.Wait();
    EXPECT_FALSE(ended.timed_out);
    if (!format.empty() && ended.signal == SIGINT) continue;  // before the handler was there
    EXPECT_EQ(ended.exit_code, 130) << ended.err;
    const std::string text = ReadFile(out).value();
    if (format.empty()) {
      EXPECT_EQ(text.substr(0, 26), "cdefghijklmnopqrstuvwxyzab");
      EXPECT_TRUE(text.ends_with('\n'));
    } else {
      const auto json = ParseJson(text, "output");
      ASSERT_TRUE(json.ok()) << json.status();
      EXPECT_EQ(json->at(0).at("finish_reason"), "interrupted");
    }
  }
}

}  // namespace
}  // namespace cria::trainer

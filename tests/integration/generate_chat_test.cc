// `cria generate --chat` as a user runs it.

#include <gtest/gtest.h>

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

// "abc" and the end of the message is every reply.
const std::string& ChatModel() {
  static const std::string* const dir = new std::string(WriteMarkovFolder(
      "chat_model",
      [](int32_t from, int32_t to) {
        return from == 'c' ? (to == kByteEot ? 9.0f : 0.0f) : AlphabetLogit(from, to);
      },
      {.max_positions = 512,
       .chat_template = "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
                        "'<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
                        "{% endfor %}"}));
  return *dir;
}

// The conversation as text, special tokens shown.
std::string Shown(const Json& ids) {
  return ByteTokenizer().Decode(ids.get<std::vector<int32_t>>());
}

Json Parsed(const Ended& ended) {
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto json = ParseJson(ended.out, "output");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

TEST(GenerateChatTest, AnswersAPromptInTheTemplate) {
  const Ended ended = RunProcess({kProgram, ChatModel(), "--chat", "--prompt", " Hi ", "-q"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "abc\n");
  const Json json = Parsed(RunProcess({kProgram, ChatModel(), "--chat", "--system", "Be brief.",
                                       "-p", "Hi", "-p", "<|eot_id|>", "--json"}));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(Shown(json[0]["prompt_ids"]),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(json[0]["ids"], (Json{'a', 'b', 'c', kByteEot}));
  EXPECT_EQ(json[0]["text"], "abc");
  EXPECT_EQ(json[0]["finish_reason"], "eos");
  // A user's "<|eot_id|>" is text: two real ones, of the system's and the user's message.
  int num_ends = 0;
  for (const Json& id : json[1]["prompt_ids"]) num_ends += id == kByteEot;
  EXPECT_EQ(num_ends, 2);
}

TEST(GenerateChatTest, LinesOfStandardInputAreAConversation) {
  const std::string file = JoinPath(FreshDir("chat_stdin"), "input");
  ASSERT_TRUE(WriteFileAtomic(file, "Hi\nAnd?\n").ok());
  const auto chat = [&](const std::string& more) {
    return RunProcess(
        {"/bin/sh", "-c", StrCat(kProgram, " ", ChatModel(), " --chat ", more, " < ", file)});
  };
  EXPECT_EQ(chat("-q").out, "abc\nabc\n");
  const Json json = Parsed(chat("--json"));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["prompt"], "And?");
  EXPECT_EQ(Shown(json[1]["prompt_ids"]),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nabc<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nAnd?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(GenerateChatTest, TakesTextsOnly) {
  const Ended ended = RunProcess({kProgram, ChatModel(), "--chat", "--prompt-ids", "1"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("--chat takes texts"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace cria::trainer

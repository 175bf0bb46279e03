#include "trainer/generate/prompts.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/str.h"
#include "tests/support/process.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

std::vector<std::string> Texts(const StatusOr<std::vector<PromptInput>>& inputs) {
  std::vector<std::string> texts;
  if (!inputs.ok()) ADD_FAILURE() << inputs.status();
  if (inputs.ok()) {
    for (const PromptInput& input : *inputs) texts.push_back(input.text.value_or("no text"));
  }
  return texts;
}

std::string Error(const StatusOr<std::vector<PromptInput>>& inputs) {
  EXPECT_EQ(inputs.status().code(), StatusCode::kInvalidArgument);
  return Message(inputs.status());
}

TEST(PromptsTest, ALineOfATextFileIsAPrompt) {
  EXPECT_EQ(Texts(ParsePromptFile("one\ntwo\r\n\n  three \n{\"prompt\": \"x\"}", "p.txt")),
            (std::vector<std::string>{"one", "two", "  three ", "{\"prompt\": \"x\"}"}));
  EXPECT_EQ(Error(ParsePromptFile("\n\n", "p.txt")), "--prompts p.txt: there is no prompt in it");
  EXPECT_EQ(Error(ParsePromptFile("", "p.txt")), "--prompts p.txt: there is no prompt in it");
}

TEST(PromptsTest, ALineOfAJsonlFileIsAnObject) {
  const auto inputs = ParsePromptFile(
      "{\"prompt\": \"a\\nb\", \"id\": 7}\n\n{\"prompt_ids\": [3, 1]}\n{\"prompt\": \"\"}\n",
      "p.jsonl");
  EXPECT_EQ(Texts(inputs), (std::vector<std::string>{"a\nb", "no text", ""}));
  EXPECT_EQ(inputs->at(1).ids, (std::vector<int32_t>{3, 1}));
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"{\"prompt\": 5}", "p.jsonl:2: prompt: expected a string"},
           {"{\"text\": \"x\"}", "p.jsonl:2: prompt"},
           {"[1]", "p.jsonl:2"},
           {"{\"prompt\": \"x\"", "p.jsonl:2"},
           {"{\"prompt_ids\": [1, \"x\"]}", "p.jsonl:2: prompt_ids[1]: expected an integer"}}) {
    const std::string error = Error(ParsePromptFile("{\"prompt\": \"ok\"}\n" + line, "p.jsonl"));
    EXPECT_EQ(error.rfind(message, 0), 0u) << error;
  }
}

TEST(PromptsTest, IdsComeWithCommasOrSpaces) {
  for (const char* text : {"1,2,30", "1 2 30", "[1, 2, 30]", "1\n2\t30\n"}) {
    EXPECT_EQ(*ParseIdList(text), (std::vector<int32_t>{1, 2, 30})) << text;
  }
  EXPECT_TRUE(ParseIdList("")->empty());
  for (const char* text : {"1,x", "1.5", "-1", "99999999999", "0x10"}) {
    EXPECT_EQ(ParseIdList(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(Error(ReadPrompts({.id_lists = {"1,two"}})), "--prompt-ids: \"two\" is not an id");
}

TEST(PromptsTest, ReadsAllSourcesInOrder) {
  const std::string file = JoinPath(FreshDir("prompts"), "p.txt");
  ASSERT_TRUE(WriteFileAtomic(file, "second\nthird\n").ok());
  const auto inputs = ReadPrompts({.texts = {"first"}, .files = {file}, .id_lists = {"4"}});
  EXPECT_EQ(Texts(inputs), (std::vector<std::string>{"first", "second", "third", "no text"}));
  EXPECT_EQ(ReadPrompts({.files = {file + ".missing"}}).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(ReadPrompts({})->empty());
}

TEST(PromptsTest, ALabelIsOneShortLineOfWholeCharacters) {
  const auto label = [](std::string text) { return PromptInput{.text = text, .ids = {}}.Label(8); };
  EXPECT_EQ(label("a\nb\tc"), "a b c");
  EXPECT_EQ(label("12345678"), "12345678");
  EXPECT_EQ(label("123456789"), "12345678...");
  EXPECT_EQ(label("ééééé"), "éééé...");
  EXPECT_EQ(label("1ééééé"), "1ééé...");
  EXPECT_EQ(label("\x1B[31mred"), "?[31mred");
  EXPECT_EQ((PromptInput{.text = std::nullopt, .ids = {1, 22, 333, 4444}}.Label(8)), "1 22 333...");
  for (size_t size = 0; size < 40; ++size) {
    const std::string cut =
        label(std::string("🦙中é\xFF 🦙🦙🦙🦙🦙🦙🦙🦙🦙").substr(0, size));
    EXPECT_EQ(ValidUtf8Prefix(cut), cut.size()) << size;
  }
}

}  // namespace
}  // namespace cria::trainer

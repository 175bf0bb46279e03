#include "trainer/eval/choices_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "base/file.h"

namespace cria::trainer {
namespace {

std::string ErrorOf(std::string_view text) {
  return Message(ParseChoices(text, "q.jsonl").status());
}

TEST(ChoicesFileTest, ReadsOurFormAndHellaSwags) {
  const auto questions = ParseChoices(
      "{\"context\": \"A llama eats\", \"choices\": [\"grass.\", \"stones.\"], \"answer\": 1}\n"
      "\n"
      "{\"ind\": 24, \"ctx_a\": \"x\", \"ctx\": \"He\", \"endings\": [\"a\", \"b\", \"c\"], "
      "\"label\": \"2\", \"split\": \"val\"}\r\n"
      "{\"ctx\": \"\", \"endings\": [\"a\", \"b\"], \"label\": 0}",
      "q.jsonl");
  ASSERT_TRUE(questions.ok()) << questions.status();
  ASSERT_EQ(questions->size(), 3u);
  EXPECT_EQ((*questions)[0].context, "A llama eats");
  EXPECT_EQ((*questions)[0].choices, (std::vector<std::string>{"grass.", "stones."}));
  EXPECT_EQ((*questions)[0].answer, 1);
  EXPECT_EQ((*questions)[0].line, 1);
  EXPECT_EQ((*questions)[1].context, "He");
  EXPECT_EQ((*questions)[1].choices.size(), 3u);
  EXPECT_EQ((*questions)[1].answer, 2);
  EXPECT_EQ((*questions)[1].line, 3);
  EXPECT_EQ((*questions)[2].line, 4);
}

TEST(ChoicesFileTest, StopsAfterTheCountThatWasAskedFor) {
  const std::string line = R"({"context": "a", "choices": ["b", "c"], "answer": 0})";
  const auto questions = ParseChoices(StrCat(line, "\n", line, "\nnot JSON\n"), "q", 2);
  ASSERT_TRUE(questions.ok()) << questions.status();
  EXPECT_EQ(questions->size(), 2u);
}

TEST(ChoicesFileTest, NamesFileLineAndField) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "q.jsonl: no question in it"},
      {"\n \n", "q.jsonl: no question in it"},
      {"[1]", "q.jsonl:1: expected an object"},
      {"{\"context\": 1}", "q.jsonl:1: context: expected a string, got 1"},
      {"{\"choices\": []}", "q.jsonl:1: context: missing"},
      {"{\"context\": \"a\", \"choices\": \"b\"}", "q.jsonl:1: choices: expected a list"},
      {"{\"context\": \"a\", \"choices\": [\"b\", 2]}", "choices[1]: expected a string, got 2"},
      {"{\"context\": \"a\", \"choices\": [\"b\"], \"answer\": 0}", "choices: 1 choices; 2 to 100"},
      {"{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}", "choices[1]: empty"},
      {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}", "q.jsonl:1: answer: missing"},
      {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}",
       "q.jsonl:1: answer: 2 of 2 choices, counted from 0"},
      {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": -1}", "answer: -1 of 2"},
      {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 0.5}", "answer: expected"},
      // HellaSwag's test split, whose labels are kept secret.
      {"\n{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"\"}",
       "q.jsonl:2: label: expected a number, got \"\""},
      {"{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"1x\"}", "got \"1x\""},
      {"{\"context\": \"a\", \"context\": \"b\"}", "the key \"context\" twice"},
      {"{\"context\": \"\xff\"}", "q.jsonl:1"},
      {"{\"context\": \"a\"", "q.jsonl:1"},
  };
  for (const auto& [text, want] : kCases) {
    const std::string got = ErrorOf(text);
    EXPECT_NE(got.find(want), std::string::npos) << text << "\n got: " << got;
  }
}

TEST(ChoicesFileTest, AMissingFileIsNotFoundAndANamedOneIsRead) {
  EXPECT_EQ(ReadChoices("/no/such/file").status().code(), StatusCode::kNotFound);
  const std::string path = JoinPath(std::getenv("TEST_TMPDIR"), "q.jsonl");
  ASSERT_TRUE(WriteFileAtomic(path, "{}").ok());
  EXPECT_NE(Message(ReadChoices(path).status()).find(StrCat(path, ":1: ")), std::string::npos);
}

}  // namespace
}  // namespace cria::trainer

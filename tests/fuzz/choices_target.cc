// Multiple-choice questions in JSONL (trainer/eval/choices_file.h).

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/eval/choice_tokens.h"
#include "trainer/eval/choices_file.h"

namespace cria::fuzz {
namespace {

Status Read(std::string_view input) {
  const auto questions = trainer::ParseChoices(input, "fuzzed.jsonl");
  if (!questions.ok()) return NamesPlace(questions.status(), "fuzzed.jsonl");
  CRIA_CHECK(!questions->empty());
  int64_t line = 0;
  for (const trainer::ChoiceQuestion& question : *questions) {
    CRIA_CHECK_GT(question.line, line);
    line = question.line;
    const auto num_choices = static_cast<int64_t>(question.choices.size());
    CRIA_CHECK(num_choices >= 2 && num_choices <= trainer::kChoicesMax, num_choices);
    CRIA_CHECK(question.answer >= 0 && question.answer < num_choices, question.answer);
    for (const std::string& choice : question.choices) CRIA_CHECK(!choice.empty());
    CRIA_CHECK(question.context.starts_with(trainer::StripEnd(question.context)));
  }
  return OkStatus();
}

std::vector<std::string> Seeds() {
  return {
      "{\"context\": \"A llama eats \\u00e9\", \"choices\": [\"grass.\", \"stones.\"], "
      "\"answer\": 1}\n\n{\"context\": \"\", \"choices\": [\"a\", \"b\", \"c\"], \"answer\": 0}",
      "{\"ind\": 24, \"ctx_a\": \"x\", \"ctx\": \"He \", \"endings\": [\"a\", \"b\", \"c\", "
      "\"d\"], "
      "\"label\": \"2\", \"source_id\": \"w~1\"}\r\n"};
}

std::vector<std::string> Regressions() {
  return {std::string(100'000, '['), "{\"context\":" + std::string(100'000, '['),
          R"({"context": "a", "choices": ["b", "c"], "answer": 18446744073709551615})",
          R"({"context": "a", "choices": ["b", "c"], "answer": "99999999999999999999"})"};
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {
      .name = "choices", .read = Read, .seeds = Seeds, .regressions = Regressions};
  return target;
}

}  // namespace cria::fuzz

#include "trainer/eval/choices_file.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace cria::trainer {
namespace {

// The names of the three fields: ours or HellaSwag's.
struct Keys {
  const char* context;
  const char* choices;
  const char* answer;
};
constexpr Keys kOurs = {"context", "choices", "answer"};
constexpr Keys kHellaSwag = {"ctx", "endings", "label"};

// An integer, or one in digits.
StatusOr<int64_t> ReadAnswer(const Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return JsonGet<int64_t>(json, key, where);
  const auto& text = found->get_ref<const std::string&>();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return InvalidArgumentError(where, ": ", key, ": expected a number, got \"", text.substr(0, 40),
                                "\"");
  }
  return value;
}

StatusOr<ChoiceQuestion> ParseQuestion(std::string_view line, const std::string& where) {
  CRIA_ASSIGN_OR_RETURN(const Json json, ParseJson(line, where));
  if (!json.is_object()) return InvalidArgumentError(where, ": expected an object");
  const Keys& keys =
      !json.contains(kOurs.context) && json.contains(kHellaSwag.context) ? kHellaSwag : kOurs;
  ChoiceQuestion question;
  CRIA_ASSIGN_OR_RETURN(question.context, JsonGet<std::string>(json, keys.context, where));
  CRIA_ASSIGN_OR_RETURN(question.choices,
                        JsonGet<std::vector<std::string>>(json, keys.choices, where));
  const auto num_choices = static_cast<int64_t>(question.choices.size());
  if (num_choices < 2 || num_choices > kChoicesMax) {
    return InvalidArgumentError(where, ": ", keys.choices, ": ", num_choices, " choices; 2 to ",
                                kChoicesMax, " make a question");
  }
  for (int64_t i = 0; i < num_choices; ++i) {
    if (!question.choices[static_cast<size_t>(i)].empty()) continue;
    return InvalidArgumentError(where, ": ", keys.choices, "[", i, "]: empty");
  }
  CRIA_ASSIGN_OR_RETURN(question.answer, ReadAnswer(json, keys.answer, where));
  if (question.answer < 0 || question.answer >= num_choices) {
    return InvalidArgumentError(where, ": ", keys.answer, ": ", question.answer, " of ",
                                num_choices, " choices, counted from 0");
  }
  return question;
}

}  // namespace

StatusOr<std::vector<ChoiceQuestion>> ParseChoices(std::string_view text, const std::string& name,
                                                   int64_t count_max) {
  std::vector<ChoiceQuestion> questions;
  int64_t line_number = 0;
  while (!text.empty() && static_cast<int64_t>(questions.size()) < count_max) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    CRIA_ASSIGN_OR_RETURN(ChoiceQuestion question,
                          ParseQuestion(line, StrCat(name, ":", line_number)));
    question.line = line_number;
    questions.push_back(std::move(question));
  }
  if (questions.empty()) return InvalidArgumentError(name, ": no question in it");
  return questions;
}

StatusOr<std::vector<ChoiceQuestion>> ReadChoices(const std::string& path, int64_t count_max) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseChoices(text, path, count_max);
}

}  // namespace cria::trainer

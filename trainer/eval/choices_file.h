// Multiple-choice questions from a JSONL file.
//
//   {"context": "A llama eats", "choices": ["grass.", "stones."], "answer": 0}
//   {"ctx": "A llama eats", "endings": ["grass.", "stones."], "label": "0"}
//
// The second form is HellaSwag's own; its label may be a number or a string of digits. Other keys
// are passed over, blank lines too.
//
//   CRIA_ASSIGN_OR_RETURN(const auto questions, ReadChoices("hellaswag_val.jsonl", 1000));
//
// Called by `cria eval`. Thread-safe. Memory: a small multiple of the file.

#ifndef CRIA_TRAINER_EVAL_CHOICES_FILE_H_
#define CRIA_TRAINER_EVAL_CHOICES_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

inline constexpr int64_t kChoicesMax = 100;  // of one question

struct ChoiceQuestion {
  int64_t line = 0;  // in the file, from 1
  std::string context = {};
  std::vector<std::string> choices = {};  // 2 to kChoicesMax, none empty
  int64_t answer = 0;                     // index into choices
};

// The first `count_max` questions. InvalidArgument "<path>:<line>: <field>: ..." for a line that is
// not such an object, NotFound without the file, InvalidArgument for a file without a question.
StatusOr<std::vector<ChoiceQuestion>> ReadChoices(const std::string& path,
                                                  int64_t count_max = INT64_MAX);

// The same from text; `name` stands in for the path.
StatusOr<std::vector<ChoiceQuestion>> ParseChoices(std::string_view text, const std::string& name,
                                                   int64_t count_max = INT64_MAX);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_EVAL_CHOICES_FILE_H_

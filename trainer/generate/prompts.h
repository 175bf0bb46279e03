// What a user asks `cria generate` to continue, gathered from flags, files and standard input.
//
//   CRIA_ASSIGN_OR_RETURN(const std::vector<PromptInput> inputs,
//                         ReadPrompts({.texts = {"In the beginning", "-"}}));
//
// Thread-safe.

#ifndef CRIA_TRAINER_GENERATE_PROMPTS_H_
#define CRIA_TRAINER_GENERATE_PROMPTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

// A text, or ids as they are.
struct PromptInput {
  std::optional<std::string> text;
  std::vector<int32_t> ids;  // where there is no text

  // One line of at most about `columns` characters that shows it.
  std::string Label(size_t columns = 60) const;
};

struct PromptSources {
  std::vector<std::string> texts = {};  // "-": all of standard input, without its last line break
  // A file ("-": standard input): a prompt a line, empty lines left out; or where it is called
  // *.jsonl, objects with "prompt" (a string) or "prompt_ids" (a list).
  std::vector<std::string> files = {};
  std::vector<std::string> id_lists = {};  // "1,2,3"
};

// In the order of the fields. InvalidArgument that names the flag, the file and the line; the
// file's errors.
StatusOr<std::vector<PromptInput>> ReadPrompts(const PromptSources& sources);

// The prompts of a file's text, by the rules above.
StatusOr<std::vector<PromptInput>> ParsePromptFile(std::string_view text, const std::string& path);

// "1,2,3", "1 2 3" or "[1, 2, 3]".
StatusOr<std::vector<int32_t>> ParseIdList(std::string_view text);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_GENERATE_PROMPTS_H_

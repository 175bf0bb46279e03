#include "trainer/generate/prompts.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "trainer/generate/terminal_text.h"
#include "trainer/generate/text_stream.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

StatusOr<std::string> ReadInput(const std::string& path) {
  return ReadFile(path == "-" ? "/dev/stdin" : path);
}

// Without the line break that a shell's echo or an editor puts at the end.
std::string WithoutLastLineBreak(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

StatusOr<PromptInput> ParseJsonLine(std::string_view line, const std::string& where) {
  CRIA_ASSIGN_OR_RETURN(const Json json, ParseJson(line, where));
  PromptInput input;
  if (json.is_object() && json.contains("prompt_ids")) {
    CRIA_ASSIGN_OR_RETURN(input.ids, JsonGet<std::vector<int32_t>>(json, "prompt_ids", where));
    return input;
  }
  CRIA_ASSIGN_OR_RETURN(input.text, JsonGet<std::string>(json, "prompt", where));
  return input;
}

}  // namespace

std::string PromptInput::Label(size_t columns) const {
  std::string label;
  if (text) {
    label = TerminalText(ReplaceInvalidUtf8(text->substr(0, 8 * columns)));
    std::replace(label.begin(), label.end(), '\n', ' ');
    std::replace(label.begin(), label.end(), '\t', ' ');
  } else {
    for (const int32_t id : ids) {
      if (label.size() > columns) break;
      label += StrCat(label.empty() ? "" : " ", id);
    }
  }
  if (label.size() <= columns) return label;
  size_t end = columns;
  while (end > 0 && (static_cast<uint8_t>(label[end]) & 0xC0) == 0x80) --end;
  return label.substr(0, end) + "...";
}

StatusOr<std::vector<int32_t>> ParseIdList(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<int32_t> ids;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBetween), text.size()));
    if (text.empty()) return ids;
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    int32_t id = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size() || id < 0) {
      return InvalidArgumentError("\"", ReplaceInvalidUtf8(word.substr(0, 40)), "\" is not an id");
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

StatusOr<std::vector<PromptInput>> ParsePromptFile(std::string_view text, const std::string& path) {
  const bool is_jsonl = path.ends_with(".jsonl");
  std::vector<PromptInput> inputs;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (is_jsonl) {
      CRIA_ASSIGN_OR_RETURN(PromptInput input, ParseJsonLine(line, StrCat(path, ":", number)));
      inputs.push_back(std::move(input));
    } else {
      inputs.push_back({.text = std::string(line), .ids = {}});
    }
  }
  if (inputs.empty()) return InvalidArgumentError("--prompts ", path, ": there is no prompt in it");
  return inputs;
}

StatusOr<std::vector<PromptInput>> ReadPrompts(const PromptSources& sources) {
  std::vector<PromptInput> inputs;
  for (const std::string& text : sources.texts) {
    if (text != "-") {
      inputs.push_back({.text = text, .ids = {}});
      continue;
    }
    CRIA_ASSIGN_OR_RETURN(std::string piped, ReadInput("-"));
    inputs.push_back({.text = WithoutLastLineBreak(std::move(piped)), .ids = {}});
  }
  for (const std::string& path : sources.files) {
    CRIA_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
    CRIA_ASSIGN_OR_RETURN(const std::vector<PromptInput> prompts, ParsePromptFile(text, path));
    inputs.insert(inputs.end(), prompts.begin(), prompts.end());
  }
  for (const std::string& list : sources.id_lists) {
    StatusOr<std::vector<int32_t>> ids = ParseIdList(list);
    if (!ids.ok()) return Annotate(ids.status(), "--prompt-ids");
    inputs.push_back({.text = std::nullopt, .ids = *std::move(ids)});
  }
  return inputs;
}

}  // namespace cria::trainer

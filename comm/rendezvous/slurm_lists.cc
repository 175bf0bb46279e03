#include "comm/rendezvous/slurm_lists.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace cria::comm {
namespace {

// The whole of `text` as a number of at most nine digits.
std::optional<int> Digits(std::string_view text) {
  int value = 0;
  if (text.empty() || text.size() > 9) return std::nullopt;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// `text` cut at the commas that stand outside brackets.
std::vector<std::string_view> SplitOutsideBrackets(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  return parts;
}

// "01-03" -> 01 02 03, keeping the width; false when it is no range or would exceed the limit.
bool AppendRange(std::string_view range, size_t limit, std::vector<std::string>* out) {
  const size_t dash = range.find('-');
  const std::string_view first_text = range.substr(0, dash);
  const std::optional<int> first = Digits(first_text);
  const std::optional<int> last =
      dash == std::string_view::npos ? first : Digits(range.substr(dash + 1));
  if (!first.has_value() || !last.has_value() || *last < *first) return false;
  if (static_cast<size_t>(*last - *first) >= limit - std::min(limit, out->size())) return false;
  for (int i = *first; i <= *last; ++i) {
    const std::string digits = StrCat(i);
    const size_t zeros = first_text.size() - std::min(first_text.size(), digits.size());
    out->push_back(std::string(zeros, '0') + digits);
  }
  return true;
}

// One name with its brackets: every choice of each bracket, the last running fastest.
bool ExpandName(std::string_view name, size_t limit, std::vector<std::string>* out) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const size_t open = name.find('[');
    for (std::string& prefix : names) prefix += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = name.find(']', open);
    if (close == std::string_view::npos) return false;
    std::vector<std::string> choices;
    for (const std::string_view range :
         SplitOutsideBrackets(name.substr(open + 1, close - open - 1))) {
      if (!AppendRange(range, limit, &choices)) return false;
    }
    if (names.size() * choices.size() > limit) return false;
    std::vector<std::string> longer;
    for (const std::string& prefix : names) {
      for (const std::string& choice : choices) longer.push_back(prefix + choice);
    }
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  for (std::string& full : names) {
    if (full.empty() || full.find_first_of("[] ") != std::string::npos) return false;
    out->push_back(std::move(full));
  }
  return out->size() <= limit;
}

}  // namespace

StatusOr<std::vector<std::string>> ExpandNodeList(const std::string& list, int limit) {
  std::vector<std::string> names;
  for (const std::string_view name : SplitOutsideBrackets(list)) {
    if (!ExpandName(name, static_cast<size_t>(limit), &names)) {
      return InvalidArgumentError("node list \"", list, "\": \"", name,
                                  "\" is no host name, no name with ranges like node[01-03,07], "
                                  "or makes more than ",
                                  limit, " hosts");
    }
  }
  return names;
}

StatusOr<std::vector<int>> ExpandTasksPerNode(const std::string& list, int limit) {
  std::vector<int> tasks;
  for (const std::string_view part : SplitOutsideBrackets(list)) {
    const size_t open = part.find("(x");
    const std::optional<int> count = Digits(part.substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      times =
          part.back() == ')' ? Digits(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
    }
    if (!count.has_value() || !times.has_value() ||
        *times > limit - static_cast<int>(tasks.size())) {
      return InvalidArgumentError("tasks per node \"", list, "\": \"", part,
                                  "\" is no count like 4 or 4(x2), or makes more than ", limit,
                                  " hosts");
    }
    tasks.insert(tasks.end(), static_cast<size_t>(*times), *count);
  }
  return tasks;
}

}  // namespace cria::comm

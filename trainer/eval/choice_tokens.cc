#include "trainer/eval/choice_tokens.h"

#include <algorithm>
#include <array>

namespace cria::trainer {
namespace {

// Python's white space beyond ASCII, in UTF-8.
constexpr std::array<std::string_view, 19> kWideSpaces = {
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
    "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
    "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
    "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

// Bytes of the white space character at the end, or 0.
size_t SpaceAtEnd(std::string_view text) {
  if (text.empty()) return 0;
  const char c = text.back();
  if (c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f)) return 1;
  for (const std::string_view space : kWideSpaces) {
    if (text.ends_with(space)) return space.size();
  }
  return 0;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text,
                            std::optional<int32_t> bos_id) {
  std::vector<int32_t> ids;
  if (bos_id) ids.push_back(*bos_id);
  tokenizer.Encode(text, &ids);
  return ids;
}

}  // namespace

std::string_view StripEnd(std::string_view text) {
  while (const size_t bytes = SpaceAtEnd(text)) text.remove_suffix(bytes);
  return text;
}

StatusOr<ChoiceTokens> EncodeChoices(const ChoiceQuestion& question, const Tokenizer& tokenizer,
                                     const ChoiceTokensOptions& options, const std::string& where) {
  const std::string_view context = StripEnd(question.context);
  const std::string_view moved = std::string_view(question.context).substr(context.size());
  std::vector<int32_t> context_ids = Encode(tokenizer, context, options.bos_id);
  const size_t num_context = context_ids.size();
  if (context_ids.empty()) {
    if (!options.prefix_id) {
      return InvalidArgumentError(where, ": the context is empty, and the model has no token to ",
                                  "begin with");
    }
    context_ids.push_back(*options.prefix_id);
  }
  ChoiceTokens tokens;
  int64_t longest = 0;
  for (size_t i = 0; i < question.choices.size(); ++i) {
    const std::vector<int32_t> whole =
        Encode(tokenizer, StrCat(context, moved, " ", question.choices[i]), options.bos_id);
    if (whole.size() <= num_context) {
      return InvalidArgumentError(where, ": choice ", i, " adds no token to the context");
    }
    tokens.continuations.emplace_back(whole.begin() + static_cast<int64_t>(num_context),
                                      whole.end());
    const auto length = static_cast<int64_t>(tokens.continuations.back().size());
    // Its last token is predicted but never an input; one token must stand before it.
    if (length > options.positions_max) {
      return InvalidArgumentError(where, ": choice ", i, " has ", length,
                                  " tokens; the model takes ", options.positions_max);
    }
    longest = std::max(longest, length);
  }
  const auto kept = [&](int64_t length) {
    const int64_t room = options.positions_max + 1 - length;
    return std::min(static_cast<int64_t>(context_ids.size()), room);
  };
  tokens.is_truncated = kept(longest) < static_cast<int64_t>(context_ids.size());
  for (const std::vector<int32_t>& continuation : tokens.continuations) {
    tokens.contexts.emplace_back(
        context_ids.end() - kept(static_cast<int64_t>(continuation.size())), context_ids.end());
    if (!tokens.is_truncated) break;
  }
  return tokens;
}

}  // namespace cria::trainer

#include "trainer/tokenizer/added_tokens.h"

#include <algorithm>

namespace cria::trainer {

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& added) {
  for (const AddedToken& token : added) {
    by_first_byte_[static_cast<uint8_t>(token.content[0])].push_back(&token);
    (token.special ? has_special_ : has_plain_) = true;
  }
  for (std::vector<const AddedToken*>& tokens : by_first_byte_) {
    std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken* a, const AddedToken* b) {
      return a->content.size() > b->content.size();
    });
  }
}

AddedTokenMatcher::Match AddedTokenMatcher::Find(std::string_view text, size_t from,
                                                 bool parse_special) const {
  if (!HasAny(parse_special)) return {};
  for (size_t i = from; i < text.size(); ++i) {
    for (const AddedToken* token : by_first_byte_[static_cast<uint8_t>(text[i])]) {
      if ((parse_special || !token->special) && text.substr(i).starts_with(token->content)) {
        return {i, token};
      }
    }
  }
  return {};
}

}  // namespace cria::trainer

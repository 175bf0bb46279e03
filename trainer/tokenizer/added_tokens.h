// Finds added tokens in text: the leftmost, of several at one place the longest.
//
//   const AddedTokenMatcher matcher(added);
//   const AddedTokenMatcher::Match m = matcher.Find(text, 0, /*parse_special=*/true);
//   if (m.token != nullptr) ... text.substr(m.begin, m.token->content.size())
//
// Thread-safe once made. Cost: a byte's table look-up, and a compare per candidate of that byte.

#ifndef CRIA_TRAINER_TOKENIZER_ADDED_TOKENS_H_
#define CRIA_TRAINER_TOKENIZER_ADDED_TOKENS_H_

#include <array>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/tokenizer_parts.h"

namespace cria::trainer {

class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin = 0;
    const AddedToken* token = nullptr;  // nullptr: none in the rest of the text
  };

  // Keeps pointers into `added`, which outlives the matcher.
  explicit AddedTokenMatcher(const std::vector<AddedToken>& added);

  Match Find(std::string_view text, size_t from, bool parse_special) const;

  // True when Find can find anything.
  bool HasAny(bool parse_special) const { return has_plain_ || (parse_special && has_special_); }

 private:
  std::array<std::vector<const AddedToken*>, 256> by_first_byte_;  // longest first
  bool has_plain_ = false;
  bool has_special_ = false;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_ADDED_TOKENS_H_

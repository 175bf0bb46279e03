// Finds added tokens in text, as Hugging Face tokenizers finds them.
//
//   const AddedTokenMatcher matcher(patterns);
//   matcher.ForEachPart(text, /*parse_special=*/true, [&](std::string_view part, int32_t id) {
//     // id < 0: text between added tokens, never empty
//   });
//
// Of all places the leftmost, of several tokens at one place the longest. What is found but not
// wanted there (a special token where they are not parsed, a single word within another word) is
// text, and the search goes on behind it. A token with lstrip takes the white space before it
// along, one with rstrip that behind it.
// Thread-safe once made. Cost: a table look-up for a byte that begins no token; a step of a trie
// for each byte that a token might go on with.

#ifndef CRIA_TRAINER_TOKENIZER_ADDED_TOKENS_H_
#define CRIA_TRAINER_TOKENIZER_ADDED_TOKENS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/tokenizer_parts.h"

namespace cria::trainer {

class AddedTokenMatcher {
 public:
  // What to look for: a token's content, or what the normalizer made of it.
  struct Pattern {
    std::string text;  // not empty
    AddedToken token;
  };

  explicit AddedTokenMatcher(std::vector<Pattern> patterns);

  // True when anything can be found.
  bool HasAny(bool parse_special) const { return has_plain_ || (parse_special && has_special_); }

  // Calls body(part, id) for the parts of the text in order; id is -1 for what is no token.
  template <typename Body>
  void ForEachPart(std::string_view text, bool parse_special, Body&& body) const {
    size_t done = 0;
    size_t from = 0;
    Span space;  // the last white space that a token has taken along
    while (HasAny(parse_special) && from < text.size()) {
      const Match match = Find(text, from);
      if (match.token == nullptr) break;
      from = match.end;
      if (!IsWanted(text, match, parse_special)) continue;
      const size_t begin = match.token->lstrip ? StrippedBegin(text, match, done) : match.begin;
      if (begin > done) body(text.substr(done, begin - done), -1);
      body(text.substr(match.begin, match.end - match.begin), match.token->id);
      done = match.token->rstrip ? StrippedEnd(text, match, &space) : match.end;
    }
    if (done < text.size()) body(text.substr(done), -1);
  }

 private:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    const AddedToken* token = nullptr;  // nullptr: none in the rest of the text
  };

  struct Span {
    size_t begin = 0;
    size_t end = 0;
  };

  static constexpr int32_t kNoPattern = -1;

  Match Find(std::string_view text, size_t from) const;
  static bool IsWanted(std::string_view text, const Match& match, bool parse_special);
  // Where the white space before a match begins, not before `done`.
  static size_t StrippedBegin(std::string_view text, const Match& match, size_t done);
  // Where the white space behind a match ends. `space` is kept from match to match, so that white
  // space is walked over once, also where it is made of added tokens itself.
  static size_t StrippedEnd(std::string_view text, const Match& match, Span* space);

  // The trie: node 0 is the root. A node's children by node << 8 | byte.
  std::array<uint32_t, 256> first_{};  // of the root; 0: none
  std::unordered_map<uint64_t, uint32_t> next_;
  std::vector<int32_t> pattern_at_ = {kNoPattern};  // by node: the pattern that ends there
  std::vector<Pattern> patterns_;
  bool has_plain_ = false;
  bool has_special_ = false;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_ADDED_TOKENS_H_

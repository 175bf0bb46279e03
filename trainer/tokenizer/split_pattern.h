// A pre-tokenizer's split expression: PCRE2 with JIT, in the dialect that tokenizer.json means.
//
//   CRIA_ASSIGN_OR_RETURN(const SplitPattern pattern, SplitPattern::Create(kLlama3Pattern));
//   pattern.Split("the first day", &pieces);   // "the", " first", " day"
//
// What the dialects say differently, pattern_dialect.h rewrites or refuses.
// Compiled expressions are immutable: Thread-safe. Cost: 50 to 200 ns a piece.

#ifndef CRIA_TRAINER_TOKENIZER_SPLIT_PATTERN_H_
#define CRIA_TRAINER_TOKENIZER_SPLIT_PATTERN_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct pcre2_real_code_8;

namespace cria::trainer {

// Llama 3's (meta-llama/llama-models, models/llama3/tokenizer.py, pat_str), also GPT-4's with
// numbers in threes.
inline constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-2's: what a ByteLevel pre-tokenizer with use_regex splits by.
inline constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class SplitPattern {
 public:
  // InvalidArgument when `expression` does not compile: its place and PCRE2's reason; Unimplemented
  // what pattern_dialect.h refuses.
  static StatusOr<SplitPattern> Create(const std::string& expression);

  // An expression in PCRE2's own words; messages name it `shown`.
  static StatusOr<SplitPattern> CreatePcre2(const std::string& pcre2, const std::string& shown);

  // Matches `text` as it stands; it is not empty.
  static SplitPattern Literal(std::string text);

  // Calls match(begin, end) for each match, left to right; `text` is valid UTF-8. A match of
  // nothing counts, but not right after the match before it (Oniguruma's iterator). Where the
  // expression exhausts PCRE2's limits (it backtracks without end), the matches end.
  void ForEachMatch(std::string_view text,
                    const std::function<void(size_t begin, size_t end)>& match) const;

  // Appends the pieces: the matches and what lies between them ("Isolated").
  void Split(std::string_view text, std::vector<std::string_view>* pieces) const;

 private:
  SplitPattern(std::shared_ptr<const pcre2_real_code_8> code, std::string literal)
      : code_(std::move(code)), literal_(std::move(literal)) {}

  std::shared_ptr<const pcre2_real_code_8> code_;  // nullptr: the literal instead
  std::string literal_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_SPLIT_PATTERN_H_

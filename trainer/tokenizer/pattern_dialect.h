// Regular expressions of tokenizer.json in PCRE2's words.
//
//   CRIA_ASSIGN_OR_RETURN(const std::string pcre2, ToPcre2("\\s+(?!\\S)|\\p{N}{1,3}"));
//
// Called by split_pattern.h. Hugging Face tokenizers compiles a split expression with Oniguruma,
// tiktoken one with Rust's fancy-regex, and both have the tables of Unicode 16; PCRE2 10.42 has
// those of Unicode 14 and other meanings for some letters. What differs is rewritten:
//   \s \S         White_Space; PCRE2's own \s has U+180E as well
//   \p{L}, ...    categories with what Unicode 15 and 16 added; scripts by Script alone
//   \w \d \h \v   letters, marks, numbers and connectors; \p{Nd}; a hexadecimal digit; U+000B
//   \b \B         by that \w
//   (?m:          "." takes line ends as well; "^" and "$" are always those of lines
// and what can't be said in PCRE2's words, or is said differently by the two, is refused by name:
// sets within sets ([a[b]], &&, [[:alpha:]]), {1,3}+ and {,3}, back references, (?i) within an
// expression, \p of other names, \P, \D, \W or \B within a set.
// With (?i) one difference is left: Oniguruma lets "ss" match U+00DF and the like.
// Thread-safe.
// Source: Oniguruma's doc/RE and doc/UNICODE_PROPERTIES; pcre2pattern(3).

#ifndef CRIA_TRAINER_TOKENIZER_PATTERN_DIALECT_H_
#define CRIA_TRAINER_TOKENIZER_PATTERN_DIALECT_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace cria::trainer {

// Unimplemented: what is refused; its place and what it is. Whether the rest is an expression at
// all, PCRE2 says.
StatusOr<std::string> ToPcre2(std::string_view expression);

// The members, for use within a set of PCRE2's, of: a number as Rust's char::is_numeric has it
// (Unicode 17); punctuation as the package tokenizers has it (ASCII's, and that of Unicode 8); a
// word character as Rust's regular expressions have it.
std::string NumberMembers();
std::string WordMembers();
// An expression for one character of punctuation.
std::string PunctuationPcre2();

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_PATTERN_DIALECT_H_

// Unicode's canonical normalization forms: NFC composes, NFD takes apart.
//
//   NormalizeNfc("e\u0301") == "\u00e9";   NormalizeNfd("\u00e9") == "e\u0301"
//
// Called by normalizer.h for tokenizers that ask for them (Qwen 2, GPT-NeoX, OLMo). `text` is valid
// UTF-8. The tables are those of Unicode 9, as the package tokenizers has them: marks and
// compositions that came later stay as they are, and so do its ids.
// Thread-safe. Cost: text below U+0300 (NFC) or U+00C0 (NFD) is copied; otherwise about 20 ns a
// character. A run of marks is sorted: n log n.
// Source: Unicode Standard Annex #15; the Unicode Standard, 3.11 and 3.12 (Hangul).

#ifndef CRIA_TRAINER_TOKENIZER_NFC_H_
#define CRIA_TRAINER_TOKENIZER_NFC_H_

#include <string>
#include <string_view>

namespace cria::trainer {

std::string NormalizeNfc(std::string_view text);
std::string NormalizeNfd(std::string_view text);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_NFC_H_

// Unicode's canonical decompositions and combining classes, as nfc.cc reads them.
//
// The data is nfc_table.cc, which nfc_table.py prints. Constant: Thread-safe.

#ifndef CRIA_TRAINER_TOKENIZER_NFC_TABLE_H_
#define CRIA_TRAINER_TOKENIZER_NFC_TABLE_H_

#include <cstdint>
#include <span>

namespace cria::trainer::nfc_internal {

// `count` neighbours from `first` on, whose values stand one after another in a list.
struct Run {
  uint32_t first;
  uint32_t count;
};

struct ClassRange {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};

struct Tables {
  std::span<const Run> one_runs;
  std::span<const uint32_t> one;
  std::span<const Run> two_runs;
  std::span<const uint32_t> two;  // two values a character; composing gives it back
  std::span<const Run> only_runs;
  std::span<const uint32_t> only;  // two values a character; composing does not
  std::span<const ClassRange> classes;
};

const Tables& GetTables();

}  // namespace cria::trainer::nfc_internal

#endif  // CRIA_TRAINER_TOKENIZER_NFC_TABLE_H_

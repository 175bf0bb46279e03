// Texts and a tokenizer for the tests of this folder. Everything is a function of a seed.

#ifndef CRIA_TESTS_UNIT_TRAINER_TOKENIZER_SAMPLES_H_
#define CRIA_TESTS_UNIT_TRAINER_TOKENIZER_SAMPLES_H_

#include <cstdint>
#include <string>

#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

// Some kilobytes of English, code and other scripts to train on.
std::string TrainingText();

// A vocabulary of 500 learned from TrainingText().
const Tokenizer& SmallTokenizer();

// Valid UTF-8 of up to `max_characters` characters: words, code, digits, runs of one character,
// white space of all kinds, apostrophes, letters and numbers of many scripts, unassigned code
// points. The mixture differs from index to index.
std::string RandomText(uint64_t seed, uint64_t index, uint64_t max_characters);

// Any bytes.
std::string RandomBytes(uint64_t seed, uint64_t index, uint64_t max_bytes);

}  // namespace cria::trainer

#endif  // CRIA_TESTS_UNIT_TRAINER_TOKENIZER_SAMPLES_H_

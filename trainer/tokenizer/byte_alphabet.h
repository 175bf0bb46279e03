// GPT-2's byte alphabet: a printable character for each byte, so that a byte-level vocabulary can
// be written as JSON strings. Byte 0x20 (space) is U+0120 "Ġ", byte 0x0A is U+010A "Ċ".
//
//   ToAlphabet(" the") == "Ġthe";   FromAlphabet("Ġthe", &bytes) makes bytes " the"
//
// The order of the alphabet (by code point) is also the order of the 256 first ids in the usual
// vocabularies: "!" is 0.
// Thread-safe. Cost: a table look-up a byte.
// Source: openai/gpt-2, src/encoder.py, bytes_to_unicode.

#ifndef CRIA_TRAINER_TOKENIZER_BYTE_ALPHABET_H_
#define CRIA_TRAINER_TOKENIZER_BYTE_ALPHABET_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cria::trainer {

// The bytes in the order of their characters: ByteOfRank()[0] is '!'.
const std::array<uint8_t, 256>& ByteOfRank();

// The bytes as UTF-8 text of the alphabet.
std::string ToAlphabet(std::string_view bytes);

// The bytes that `text` stands for. False when a character is not of the alphabet.
bool FromAlphabet(std::string_view text, std::string* bytes);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_BYTE_ALPHABET_H_

#include "trainer/tokenizer/byte_alphabet.h"

#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

// Code points below 0x144, the alphabet's end, are looked up in a table.
constexpr uint32_t kAlphabetEnd = 256 + 68;

struct Alphabet {
  std::array<uint32_t, 256> code_point{};
  std::array<int16_t, kAlphabetEnd> byte{};
  std::array<uint8_t, 256> by_rank{};
};

bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  uint32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t code_point = IsPrintable(byte) ? static_cast<uint32_t>(byte) : next++;
    alphabet.code_point[byte] = code_point;
    alphabet.byte[code_point] = static_cast<int16_t>(byte);
  }
  int rank = 0;
  for (const int16_t byte : alphabet.byte) {
    if (byte >= 0) alphabet.by_rank[rank++] = static_cast<uint8_t>(byte);
  }
  return alphabet;
}

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

const std::array<uint8_t, 256>& ByteOfRank() { return GetAlphabet().by_rank; }

std::string ToAlphabet(std::string_view bytes) {
  const Alphabet& alphabet = GetAlphabet();
  std::string text;
  text.reserve(bytes.size() + 8);
  for (const char c : bytes) AppendUtf8(alphabet.code_point[static_cast<uint8_t>(c)], &text);
  return text;
}

bool FromAlphabet(std::string_view text, std::string* bytes) {
  const Alphabet& alphabet = GetAlphabet();
  bytes->clear();
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const int length = Utf8Length(p, end);
    if (length == 0) return false;
    const uint32_t code_point = DecodeUtf8(p, length);
    if (code_point >= kAlphabetEnd || alphabet.byte[code_point] < 0) return false;
    bytes->push_back(static_cast<char>(alphabet.byte[code_point]));
    p += length;
  }
  return true;
}

}  // namespace cria::trainer

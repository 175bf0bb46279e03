#include "trainer/tokenizer/utf8.h"

#include <algorithm>
#include <cstring>

namespace cria::trainer {

void AppendUtf8(uint32_t code_point, std::string* text) {
  const auto push = [text](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

size_t ValidUtf8Prefix(std::string_view text) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* p = begin;
  while (p < end) {
    uint64_t word;
    while (end - p >= 8) {
      std::memcpy(&word, p, 8);
      if ((word & 0x8080808080808080u) != 0) break;
      p += 8;
    }
    if (p == end) break;
    const int length = Utf8Length(p, end);
    if (length == 0) break;
    p += length;
  }
  return static_cast<size_t>(p - begin);
}

size_t IncompleteUtf8Suffix(std::string_view text) {
  const size_t longest = std::min<size_t>(3, text.size());
  for (size_t held = 1; held <= longest; ++held) {
    const char* const p = text.data() + text.size() - held;
    const auto lead = static_cast<uint8_t>(*p);
    if (lead >= 0x80 && lead < 0xC0) continue;  // a continuation byte: its lead is further left
    if (lead < 0x80 || static_cast<size_t>(ValidUtf8Length(lead)) <= held) return 0;
    // Valid so far if some completion is valid: the tightest second byte is in the text or free.
    char completed[4] = {p[0], static_cast<char>(0x80), static_cast<char>(0x80),
                         static_cast<char>(0x80)};
    if (lead == 0xE0) completed[1] = static_cast<char>(0xA0);
    if (lead == 0xF0) completed[1] = static_cast<char>(0x90);
    std::memcpy(completed, p, held);
    return Utf8Length(completed, completed + 4) != 0 ? held : 0;
  }
  return 0;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachUtf8Run(text, [&](std::string_view run, bool is_valid) {
    if (is_valid) {
      out += run;
      return;
    }
    while (!run.empty()) {
      size_t size = 1;
      // A longer beginning is one of a character whose other bytes could still come.
      while (size < 3 && size < run.size() &&
             IncompleteUtf8Suffix(run.substr(0, size + 1)) == size + 1) {
        ++size;
      }
      out += "\uFFFD";
      run.remove_prefix(size);
    }
  });
  return out;
}

}  // namespace cria::trainer

#include "trainer/tokenizer/nfc.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trainer/tokenizer/nfc_table.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

// Hangul syllables are composed by arithmetic.
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28;
constexpr uint32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

constexpr uint32_t kNone = 0;  // U+0000 is no part of a decomposition

struct Pair {
  uint32_t first;
  uint32_t second;  // kNone: one character alone
};

uint64_t Key(uint32_t first, uint32_t second) {
  return static_cast<uint64_t>(first) << 32 | second;
}

// The tables by code point, made once.
struct Index {
  std::unordered_map<uint32_t, Pair> decomposition;
  std::unordered_map<uint64_t, uint32_t> composition;
  std::unordered_map<uint32_t, uint8_t> combining_class;
};

template <typename Body>
void ForEachOf(std::span<const nfc_internal::Run> runs, Body&& body) {
  size_t index = 0;
  for (const nfc_internal::Run& run : runs) {
    for (uint32_t i = 0; i < run.count; ++i) body(run.first + i, index++);
  }
}

Index MakeIndex() {
  const nfc_internal::Tables& tables = nfc_internal::GetTables();
  Index index;
  ForEachOf(tables.one_runs, [&](uint32_t c, size_t i) {
    index.decomposition[c] = {tables.one[i], kNone};
  });
  ForEachOf(tables.only_runs, [&](uint32_t c, size_t i) {
    index.decomposition[c] = {tables.only[2 * i], tables.only[2 * i + 1]};
  });
  ForEachOf(tables.two_runs, [&](uint32_t c, size_t i) {
    index.decomposition[c] = {tables.two[2 * i], tables.two[2 * i + 1]};
    index.composition[Key(tables.two[2 * i], tables.two[2 * i + 1])] = c;
  });
  for (const nfc_internal::ClassRange& range : tables.classes) {
    for (uint32_t c = range.first; c <= range.last; ++c) {
      index.combining_class[c] = range.combining_class;
    }
  }
  return index;
}

const Index& GetIndex() {
  static const Index index = MakeIndex();
  return index;
}

struct Char {
  uint32_t code_point;
  uint8_t combining_class;
};

// Appends the full decomposition. The table's depth ends the recursion: three levels.
void Decompose(uint32_t c, std::vector<Char>* out) {
  if (c - kSyllables < kNumSyllables) {
    const uint32_t syllable = c - kSyllables;
    out->push_back({kLeads + syllable / (kNumVowels * kNumTails), 0});
    out->push_back({kVowels + syllable / kNumTails % kNumVowels, 0});
    if (syllable % kNumTails != 0) out->push_back({kTails + syllable % kNumTails, 0});
    return;
  }
  if (c >= 0xC0) {
    const Index& index = GetIndex();
    if (const auto found = index.decomposition.find(c); found != index.decomposition.end()) {
      Decompose(found->second.first, out);
      if (found->second.second != kNone) Decompose(found->second.second, out);
      return;
    }
    if (const auto found = index.combining_class.find(c); found != index.combining_class.end()) {
      out->push_back({c, found->second});
      return;
    }
  }
  out->push_back({c, 0});
}

// What the two compose to, kNone when they don't.
uint32_t Compose(uint32_t first, uint32_t second) {
  if (first - kLeads < kNumLeads && second - kVowels < kNumVowels) {
    return kSyllables + ((first - kLeads) * kNumVowels + second - kVowels) * kNumTails;
  }
  if (first - kSyllables < kNumSyllables && (first - kSyllables) % kNumTails == 0 &&
      second > kTails && second < kTails + kNumTails) {
    return first + second - kTails;
  }
  const Index& index = GetIndex();
  const auto found = index.composition.find(Key(first, second));
  return found == index.composition.end() ? kNone : found->second;
}

// The decomposition with each run of marks in the order of their classes.
std::vector<Char> DecomposeInOrder(std::string_view text) {
  std::vector<Char> chars;
  chars.reserve(text.size());
  for (const char* p = text.data(); p < text.data() + text.size();) {
    const int length = ValidUtf8Length(static_cast<uint8_t>(*p));
    Decompose(DecodeUtf8(p, length), &chars);
    p += length;
  }
  const auto is_mark = [](const Char& c) { return c.combining_class != 0; };
  for (auto begin = chars.begin(); begin != chars.end();) {
    begin = std::find_if(begin, chars.end(), is_mark);
    const auto end = std::find_if_not(begin, chars.end(), is_mark);
    std::stable_sort(begin, end, [](const Char& a, const Char& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
  return chars;
}

std::string ToUtf8(const std::vector<Char>& chars) {
  std::string text;
  text.reserve(2 * chars.size());
  for (const Char& c : chars) AppendUtf8(c.code_point, &text);
  return text;
}

// True when every character is below the one whose UTF-8 begins with `lead`.
bool AllBelow(std::string_view text, uint8_t lead) {
  return std::all_of(text.begin(), text.end(),
                     [lead](char c) { return static_cast<uint8_t>(c) < lead; });
}

}  // namespace

std::string NormalizeNfd(std::string_view text) {
  if (AllBelow(text, 0xC3)) return std::string(text);  // U+00C0 is C3 80
  return ToUtf8(DecomposeInOrder(text));
}

std::string NormalizeNfc(std::string_view text) {
  if (AllBelow(text, 0xCC)) return std::string(text);  // U+0300 is CC 80
  const std::vector<Char> chars = DecomposeInOrder(text);
  std::vector<Char> composed;
  composed.reserve(chars.size());
  constexpr size_t kNoStarter = ~size_t{0};
  size_t starter = kNoStarter;
  for (const Char& c : chars) {
    if (starter != kNoStarter) {
      // A mark composes with the last starter unless one of its own or a higher class is between.
      const bool is_next = starter + 1 == composed.size();
      if (is_next || composed.back().combining_class < c.combining_class) {
        const uint32_t made = Compose(composed[starter].code_point, c.code_point);
        if (made != kNone) {
          composed[starter].code_point = made;
          continue;
        }
      }
    }
    if (c.combining_class == 0) starter = composed.size();
    composed.push_back(c);
  }
  return ToUtf8(composed);
}

}  // namespace cria::trainer

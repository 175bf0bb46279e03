#include "trainer/tokenizer/char_class.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "trainer/tokenizer/split_pattern.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

constexpr uint32_t kCodePointEnd = 0x110000;

// All scalar values as one text, and where each block of 256 begins in it.
struct AllCharacters {
  std::string text;
  std::vector<uint32_t> code_point_at;  // by byte offset; only first bytes count
};

AllCharacters MakeAllCharacters() {
  AllCharacters all;
  all.text.reserve(size_t{4} * kCodePointEnd);
  for (uint32_t c = 0; c < kCodePointEnd; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    AppendUtf8(c, &all.text);
    all.code_point_at.resize(all.text.size(), c);
  }
  return all;
}

}  // namespace

CharClasses::CharClasses() {
  const AllCharacters all = MakeAllCharacters();
  std::vector<CharClass> flat(kCodePointEnd, CharClass::kOther);
  const std::pair<const char*, CharClass> classes[] = {{"\\p{L}+", CharClass::kLetter},
                                                       {"\\p{N}+", CharClass::kNumber},
                                                       {"\\s+", CharClass::kSpace}};
  for (const auto& [expression, char_class] : classes) {
    const StatusOr<SplitPattern> pattern = SplitPattern::Create(expression);
    CRIA_CHECK(pattern.ok(), "compile ", expression, ": ", Message(pattern.status()));
    pattern->ForEachMatch(all.text, [&, char_class = char_class](size_t begin, size_t end) {
      // A match is a run of neighbouring code points, but for the gap of the surrogates.
      for (uint32_t c = all.code_point_at[begin]; c <= all.code_point_at[end - 1]; ++c) {
        flat[c] = char_class;
      }
    });
  }
  flat['\r'] = flat['\n'] = CharClass::kNewline;

  for (size_t block = 0; block < block_.size(); ++block) {
    const auto begin = flat.begin() + static_cast<ptrdiff_t>(block * 256);
    size_t found = 0;
    const size_t num_stored = classes_.size() / 256;
    while (
        found < num_stored &&
        !std::equal(begin, begin + 256, classes_.begin() + static_cast<ptrdiff_t>(found * 256))) {
      ++found;
    }
    if (found == num_stored) classes_.insert(classes_.end(), begin, begin + 256);
    block_[block] = static_cast<uint16_t>(found);
  }
}

const CharClasses& char_class_internal::Table() {
  static const CharClasses table;
  return table;
}

}  // namespace cria::trainer

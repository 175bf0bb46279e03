#include "trainer/tokenizer/added_tokens.h"

#include <utility>

#include "base/check.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/pattern_dialect.h"
#include "trainer/tokenizer/split_pattern.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

const SplitPattern& WordPattern() {
  static const SplitPattern pattern = [] {
    StatusOr<SplitPattern> made =
        SplitPattern::CreatePcre2(StrCat("[", WordMembers(), "]"), "word");
    CRIA_CHECK(made.ok(), Message(made.status()));
    return *made;
  }();
  return pattern;
}

bool IsWord(std::string_view character) {
  bool is_word = false;
  WordPattern().ForEachMatch(character, [&](size_t, size_t) { is_word = true; });
  return is_word;
}

// Bytes that belong to no character are no word.
bool StartsWithWord(std::string_view text) {
  if (text.empty()) return false;
  const int length = Utf8Length(text.data(), text.data() + text.size());
  return length > 0 && IsWord(text.substr(0, static_cast<size_t>(length)));
}

bool EndsWithWord(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(4, text.size()); ++size) {
    const std::string_view last = text.substr(text.size() - size);
    const int length = Utf8Length(last.data(), last.data() + size);
    if (static_cast<size_t>(length) == size) return IsWord(last);
  }
  return false;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Pattern> patterns)
    : patterns_(std::move(patterns)) {
  for (size_t i = 0; i < patterns_.size(); ++i) {
    uint32_t node = 0;
    for (const char c : patterns_[i].text) {
      const auto byte = static_cast<uint8_t>(c);
      uint32_t& child = node == 0 ? first_[byte] : next_[static_cast<uint64_t>(node) << 8 | byte];
      if (child == 0) {
        child = static_cast<uint32_t>(pattern_at_.size());
        pattern_at_.push_back(kNoPattern);
      }
      node = child;
    }
    pattern_at_[node] = static_cast<int32_t>(i);
    (patterns_[i].token.special ? has_special_ : has_plain_) = true;
  }
}

AddedTokenMatcher::Match AddedTokenMatcher::Find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    uint32_t node = first_[static_cast<uint8_t>(text[begin])];
    if (node == 0) continue;
    Match match;
    for (size_t end = begin + 1;; ++end) {
      if (const int32_t pattern = pattern_at_[node]; pattern != kNoPattern) {
        match = {begin, end, &patterns_[static_cast<size_t>(pattern)].token};
      }
      if (end == text.size()) break;
      const auto next =
          next_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[end]));
      if (next == next_.end()) break;
      node = next->second;
    }
    if (match.token != nullptr) return match;
  }
  return {};
}

bool AddedTokenMatcher::IsWanted(std::string_view text, const Match& match, bool parse_special) {
  if (match.token->special && !parse_special) return false;
  return !match.token->single_word ||
         !(EndsWithWord(text.substr(0, match.begin)) || StartsWithWord(text.substr(match.end)));
}

size_t AddedTokenMatcher::StrippedBegin(std::string_view text, const Match& match, size_t done) {
  if (match.begin <= done) return done;
  return match.begin - TrailingSpace(text.substr(done, match.begin - done));
}

size_t AddedTokenMatcher::StrippedEnd(std::string_view text, const Match& match, Span* space) {
  if (match.end < space->begin || match.end > space->end) {
    *space = {match.end, match.end + LeadingSpace(text.substr(match.end))};
  }
  return space->end;
}

}  // namespace cria::trainer

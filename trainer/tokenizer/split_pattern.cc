#include "trainer/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/pattern_dialect.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

// PCRE2 counts steps; no sound expression comes near this on a gigabyte, and one that backtracks
// exponentially stops within seconds.
constexpr uint32_t kMatchLimit = 1u << 30;

std::string Pcre2Reason(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct JitStackFree {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

}  // namespace

StatusOr<SplitPattern> SplitPattern::Create(const std::string& expression) {
  CRIA_ASSIGN_OR_RETURN(const std::string translated, ToPcre2(expression));
  return CreatePcre2(translated, expression);
}

StatusOr<SplitPattern> SplitPattern::CreatePcre2(const std::string& pcre2,
                                                 const std::string& shown) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pcre2.data()), pcre2.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    return InvalidArgumentError("split expression \"", shown, "\": ", Pcre2Reason(error),
                                " near \"", std::string_view(pcre2).substr(offset, 20), "\"");
  }
  std::shared_ptr<const pcre2_real_code_8> shared(
      code, [](const pcre2_real_code_8* p) { pcre2_code_free(const_cast<pcre2_code*>(p)); });
  // Without JIT (a hardened kernel forbids it) the interpreter gives the same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return SplitPattern(std::move(shared), {});
}

SplitPattern SplitPattern::Literal(std::string text) {
  return SplitPattern(nullptr, std::move(text));
}

void SplitPattern::ForEachMatch(std::string_view text,
                                const std::function<void(size_t begin, size_t end)>& match) const {
  if (code_ == nullptr) {
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      match(at, at + literal_.size());
    }
    return;
  }
  const std::unique_ptr<pcre2_match_data, MatchDataFree> data(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, MatchContextFree> context(
      pcre2_match_context_create(nullptr));
  // Grows on demand: an expression with groups needs stack in proportion to what it matches.
  const std::unique_ptr<pcre2_jit_stack, JitStackFree> stack(
      pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());

  size_t from = 0;
  size_t last_end = text.size() + 1;  // of the match before: none yet
  while (from <= text.size()) {
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (found <= 0) return;
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(data.get());
    const size_t begin = range[0], end = range[1];
    if (begin < from || end < begin) return;
    if (begin == end && end == last_end) {
      // Nothing, right after the last match: look again from the next character.
      if (from == text.size()) return;
      from += static_cast<size_t>(ValidUtf8Length(static_cast<uint8_t>(text[from])));
      continue;
    }
    match(begin, end);
    from = last_end = end;
  }
}

void SplitPattern::Split(std::string_view text, std::vector<std::string_view>* pieces) const {
  size_t done = 0;
  ForEachMatch(text, [&](size_t begin, size_t end) {
    if (begin > done) pieces->push_back(text.substr(done, begin - done));
    if (end > begin) pieces->push_back(text.substr(begin, end - begin));
    done = end;
  });
  if (done < text.size()) pieces->push_back(text.substr(done));
}

}  // namespace cria::trainer

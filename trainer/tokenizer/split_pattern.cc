#include "trainer/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

namespace cria::trainer {
namespace {

// What Unicode 15, 15.1 and 16 added, as members of a character class. A PCRE2 that has them
// already is not disturbed.
constexpr char kNewLetters[] =
    R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3})"
    R"(\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
    R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C})"
    R"(\x{18CFF}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB})"
    R"(\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr char kNewNumbers[] =
    R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
    R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
    R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";

// PCRE2 counts steps; no sound expression comes near this on a gigabyte, and one that backtracks
// exponentially stops within seconds.
constexpr uint32_t kMatchLimit = 1u << 30;

struct Rewrite {
  std::string_view from;
  std::string outside;  // of a character class
  std::string inside;
};

const std::vector<Rewrite>& Rewrites() {
  static const std::vector<Rewrite> rewrites = {
      {"\\s", "\\p{White_Space}", "\\p{White_Space}"},
      {"\\S", "\\P{White_Space}", "\\P{White_Space}"},
      {"\\p{L}", StrCat("[\\p{L}", kNewLetters, "]"), StrCat("\\p{L}", kNewLetters)},
      {"\\p{N}", StrCat("[\\p{N}", kNewNumbers, "]"), StrCat("\\p{N}", kNewNumbers)},
      {"\\P{L}", StrCat("[^\\p{L}", kNewLetters, "]"), "\\P{L}"},
      {"\\P{N}", StrCat("[^\\p{N}", kNewNumbers, "]"), "\\P{N}"},
  };
  return rewrites;
}

// The expression in PCRE2's dialect.
std::string ToPcre2(std::string_view expression) {
  std::string out;
  bool in_class = false;
  while (!expression.empty()) {
    size_t used = 0;
    if (expression[0] == '\\') {
      for (const Rewrite& rewrite : Rewrites()) {
        if (!expression.starts_with(rewrite.from)) continue;
        out += in_class ? rewrite.inside : rewrite.outside;
        used = rewrite.from.size();
        break;
      }
      if (used == 0) {
        used = std::min<size_t>(2, expression.size());
        out += expression.substr(0, used);
      }
    } else {
      if (expression[0] == '[') in_class = true;
      if (expression[0] == ']') in_class = false;
      out += expression[0];
      used = 1;
    }
    expression.remove_prefix(used);
  }
  return out;
}

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
  const std::string translated = ToPcre2(expression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    return InvalidArgumentError("split expression \"", expression, "\": ", Pcre2Reason(error),
                                " near \"", std::string_view(translated).substr(offset, 20), "\"");
  }
  std::shared_ptr<const pcre2_real_code_8> shared(
      code, [](const pcre2_real_code_8* p) { pcre2_code_free(const_cast<pcre2_code*>(p)); });
  // Without JIT (a hardened kernel forbids it) the interpreter gives the same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return SplitPattern(std::move(shared));
}

void SplitPattern::ForEachMatch(std::string_view text,
                                const std::function<void(size_t begin, size_t end)>& match) const {
  const std::unique_ptr<pcre2_match_data, MatchDataFree> data(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, MatchContextFree> context(
      pcre2_match_context_create(nullptr));
  // Grows on demand: an expression with groups needs stack in proportion to what it matches.
  const std::unique_ptr<pcre2_jit_stack, JitStackFree> stack(
      pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());

  size_t at = 0;
  while (at < text.size()) {
    const int found =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data.get(), context.get());
    if (found <= 0) return;
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(data.get());
    // \K in an expression can report a match that ends before it begins or does not advance.
    if (range[0] < at || range[1] <= range[0]) return;
    match(range[0], range[1]);
    at = range[1];
  }
}

void SplitPattern::Split(std::string_view text, std::vector<std::string_view>* pieces) const {
  size_t done = 0;
  ForEachMatch(text, [&](size_t begin, size_t end) {
    if (begin > done) pieces->push_back(text.substr(done, begin - done));
    pieces->push_back(text.substr(begin, end - begin));
    done = end;
  });
  if (done < text.size()) pieces->push_back(text.substr(done));
}

}  // namespace cria::trainer

#include "trainer/tokenizer/pattern_dialect.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace cria::trainer {
namespace {

// What Unicode 15, 15.1 and 16 added to a category or a script, as members of a set. A PCRE2 that
// has them already is not disturbed.
struct Additions {
  std::string_view name;
  std::string_view members;
};
constexpr Additions kCategories[] = {
    {"Lu", R"(\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65})"},
    {"Ll", R"(\x{1C8A}\x{A7CD}\x{A7DB}\x{10D70}-\x{10D85}\x{1DF25}-\x{1DF2A})"},
    {"Lt", ""},
    {"Lm", R"(\x{10D4E}\x{10D6F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}\x{1E030}-\x{1E06D})"
           R"(\x{1E4EB})"},
    {"Lo", R"(\x{105C0}-\x{105F3}\x{10D4A}-\x{10D4D}\x{10D4F}\x{10EC2}-\x{10EC4})"
           R"(\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5})"
           R"(\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10})"
           R"(\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA})"
           R"(\x{16100}-\x{1611D}\x{16D43}-\x{16D6A}\x{18CFF}\x{1B132}\x{1B155})"
           R"(\x{1E4D0}-\x{1E4EA}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D})"
           R"(\x{31350}-\x{323AF})"},
    {"M", R"(\x{897}\x{CF3}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241})"
          R"(\x{113B8}-\x{113C0}\x{113C2}\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-\x{113D0}\x{113D2})"
          R"(\x{113E1}-\x{113E2}\x{11F00}-\x{11F01}\x{11F03}\x{11F34}-\x{11F3A})"
          R"(\x{11F3E}-\x{11F42}\x{11F5A}\x{13440}\x{13447}-\x{13455}\x{1611E}-\x{1612F}\x{1E08F})"
          R"(\x{1E4EC}-\x{1E4EF}\x{1E5EE}-\x{1E5EF})"},
    {"Nd", R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
           R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E4F0}-\x{1E4F9})"
           R"(\x{1E5F1}-\x{1E5FA})"},
    {"Nl", ""},
    {"No", R"(\x{1D2C0}-\x{1D2D3})"},
    {"Pc", ""},
    {"Pd", R"(\x{10D6E})"},
    {"Ps", ""},
    {"Pe", ""},
    {"Pi", ""},
    {"Pf", ""},
    {"Po", R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{11B00}-\x{11B09})"
           R"(\x{11BE1}\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})"},
    {"Sm", R"(\x{10D8E}-\x{10D8F})"},
    {"Sc", ""},
    {"Sk", ""},
    {"So", R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{1CC00}-\x{1CCEF})"
           R"(\x{1CD00}-\x{1CEB3}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9})"
           R"(\x{1F8B2}-\x{1F8BB}\x{1F8C0}-\x{1F8C1}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89})"
           R"(\x{1FA8F}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF}\x{1FAC6}\x{1FACE}-\x{1FACF})"
           R"(\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8})"
           R"(\x{1FBCB}-\x{1FBEF})"},
    {"Z", ""},
    {"Zs", ""},
    {"Zl", ""},
    {"Zp", ""},
    {"Cc", ""},
};
constexpr Additions kScripts[] = {
    {"Han", R"(\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Hiragana", R"(\x{1B132})"},
    {"Katakana", R"(\x{1B155})"},
    {"Hangul", ""},
    {"Latin", R"(\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{1DF25}-\x{1DF2A})"},
    {"Greek", ""},
    {"Cyrillic", R"(\x{1C89}-\x{1C8A}\x{1E030}-\x{1E06D}\x{1E08F})"},
    {"Arabic", R"(\x{897}\x{10EC2}-\x{10EC4}\x{10EFC}-\x{10EFF})"},
    {"Hebrew", ""},
    {"Thai", ""},
    {"Devanagari", R"(\x{11B00}-\x{11B09})"},
    {"Bengali", ""},
    {"Tamil", ""},
    {"Armenian", ""},
    {"Georgian", ""},
};

// Punctuation of today's Unicode that was none in Unicode 8, and two characters that were then.
constexpr char kNewPunctuation[] =
    R"(\x{61D}\x{9FD}\x{A76}\x{C77}\x{C84}\x{1B4E}-\x{1B4F}\x{1B7D}-\x{1B7F}\x{2E43}-\x{2E4F})"
    R"(\x{2E52}-\x{2E5D}\x{10D6E}\x{10EAD}\x{10F55}-\x{10F59}\x{10F86}-\x{10F89})"
    R"(\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{1144B}-\x{1144F}\x{1145A}-\x{1145B}\x{1145D})"
    R"(\x{11660}-\x{1166C}\x{116B9}\x{1183B}\x{11944}-\x{11946}\x{119E2}\x{11A3F}-\x{11A46})"
    R"(\x{11A9A}-\x{11A9C}\x{11A9E}-\x{11AA2}\x{11B00}-\x{11B09}\x{11BE1}\x{11C41}-\x{11C45})"
    R"(\x{11C70}-\x{11C71}\x{11EF7}-\x{11EF8}\x{11F43}-\x{11F4F}\x{11FFF}\x{12FF1}-\x{12FF2})"
    R"(\x{16D6D}-\x{16D6F}\x{16E97}-\x{16E9A}\x{16FE2}\x{1E5FF}\x{1E95E}-\x{1E95F})";
constexpr char kFormerPunctuation[] = R"(\x{166D}\x{111C9})";

std::string MembersOf(std::string_view category) {
  std::string members;
  // A letter stands for all categories that begin with it. Not so C: what is unassigned changes.
  if (category == "C") return {};
  bool is_known = false;
  for (const Additions& additions : kCategories) {
    if (!additions.name.starts_with(category)) continue;
    is_known = true;
    members += additions.members;
  }
  return is_known ? StrCat("\\p{", category, "}", members) : std::string();
}

// The members of \p{name} for a set; empty where the name is not understood.
std::string PropertyMembers(std::string_view name) {
  if (name == "White_Space") return "\\p{White_Space}";
  if (name.size() == 1 || name.size() == 2) return MembersOf(name);
  for (const Additions& script : kScripts) {
    if (script.name == name) return StrCat("\\p{sc:", name, "}", script.members);
  }
  return {};
}

std::string OnigurumaWordMembers() {
  return StrCat(MembersOf("L"), MembersOf("M"), MembersOf("N"), "\\p{Pc}\\p{Alphabetic}");
}

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class Translator {
 public:
  explicit Translator(std::string_view expression) : all_(expression), rest_(expression) {}

  StatusOr<std::string> Run() {
    while (!rest_.empty()) {
      CRIA_RETURN_IF_ERROR(in_set_ ? SetStep() : Step());
    }
    return std::move(out_);
  }

 private:
  Status Refuse(std::string_view what) const {
    return UnimplementedError("split expression \"", all_, "\": ", what, " at ",
                              all_.size() - rest_.size(), " is not understood");
  }

  void Copy(size_t count) {
    out_ += rest_.substr(0, count);
    rest_.remove_prefix(std::min(count, rest_.size()));
  }
  void Replace(size_t count, std::string_view text) {
    out_ += text;
    rest_.remove_prefix(count);
  }

  Status Step() {
    switch (rest_[0]) {
      case '\\':
        return Escape();
      case '[':
        return OpenSet();
      case '(':
        return Group();
      case ')':
        if (ignore_case_.size() > 1) ignore_case_.pop_back();
        Copy(1);
        return OkStatus();
      case '{':
        return Interval();
      default:
        Copy(1);
        return OkStatus();
    }
  }

  // {2}, {2,} and {1,3} mean the same to both; what else follows a brace does not.
  Status Interval() {
    size_t end = 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < rest_.size() && rest_[end] >= '0' && rest_[end] <= '9') ++end;
      return end > begin;
    };
    if (!digits()) return Refuse("\"{\" without a number");
    if (end < rest_.size() && rest_[end] == ',') {
      ++end;
      digits();
    }
    if (end >= rest_.size() || rest_[end] != '}') return Refuse("\"{\" without \"}\"");
    if (end + 1 < rest_.size() && rest_[end + 1] == '+') return Refuse("\"+\" after \"}\"");
    Copy(end + 1);
    return OkStatus();
  }

  Status Group() {
    bool ignore_case = ignore_case_.back();
    if (!rest_.starts_with("(?")) {
      if (rest_.starts_with("(*")) return Refuse("\"(*\"");
      ignore_case_.push_back(ignore_case);
      Copy(1);
      return OkStatus();
    }
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!rest_.starts_with(kind)) continue;
      ignore_case_.push_back(ignore_case);
      Copy(kind.size());
      return OkStatus();
    }
    // Options: (?i: and (?m: with their negations; (?i) at the very beginning alone.
    std::string options;
    bool is_on = true;
    size_t end = 2;
    for (; end < rest_.size() && rest_[end] != ':' && rest_[end] != ')'; ++end) {
      const char c = rest_[end];
      if (c == '-') {
        is_on = false;
        options += '-';
      } else if (c == 'i') {
        ignore_case = is_on;
        options += 'i';
      } else if (c == 'm') {
        options += 's';
      } else {
        return Refuse(rest_.substr(0, end + 1));
      }
    }
    if (end == rest_.size()) return Refuse("a group without end");
    if (rest_[end] == ')') {
      if (rest_.size() != all_.size()) return Refuse("an option within the expression");
      ignore_case_.back() = ignore_case;
    } else {
      ignore_case_.push_back(ignore_case);
    }
    Replace(end + 1, StrCat("(?", options, rest_.substr(end, 1)));
    return OkStatus();
  }

  Status OpenSet() {
    in_set_ = true;
    const size_t size = rest_.starts_with("[^") ? 2 : 1;
    Copy(size);
    if (rest_.starts_with(']')) return Refuse("an empty set");
    return OkStatus();
  }

  Status SetStep() {
    if (rest_[0] == '\\') return Escape();
    if (rest_[0] == '[') return Refuse("\"[\" within a set");
    if (rest_.starts_with("&&")) return Refuse("\"&&\" within a set");
    if (rest_[0] == ']') in_set_ = false;
    Copy(1);
    return OkStatus();
  }

  // `members` as they are within a set, as a set of their own elsewhere.
  Status PutMembers(size_t used, const std::string& members, bool negated) {
    if (in_set_) {
      if (negated) return Refuse(StrCat("\"", rest_.substr(0, used), "\" within a set"));
      Replace(used, members);
    } else {
      Replace(used, StrCat(negated ? "[^" : "[", members, "]"));
    }
    return OkStatus();
  }

  Status Property() {
    const size_t end = rest_.find('}');
    if (!rest_.substr(2).starts_with('{') || end == std::string_view::npos) {
      return Refuse("\"\\p\" without a name in braces");
    }
    std::string_view name = rest_.substr(3, end - 3);
    bool negated = rest_[1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::string members = PropertyMembers(name);
    if (members.empty()) return Refuse(StrCat("property \"", name, "\""));
    const bool is_cased = name == "Lu" || name == "Ll" || name == "Lt";
    if (is_cased && ignore_case_.back()) {
      return Refuse(StrCat("property \"", name, "\" where case is ignored"));
    }
    return PutMembers(end + 1, members, negated);
  }

  // \x41, \x{10FFFF} and \u0041.
  Status CodePoint() {
    size_t begin = 2, end = 2;
    const bool is_braced = rest_[1] == 'x' && rest_.substr(2).starts_with('{');
    if (is_braced) begin = ++end;
    const size_t digits_max = is_braced ? 6 : rest_[1] == 'u' ? 4 : 2;
    while (end < rest_.size() && end - begin < digits_max && IsHex(rest_[end])) ++end;
    const std::string digits(rest_.substr(begin, end - begin));
    if (is_braced && rest_.substr(end, 1) != "}") return Refuse("\"\\x{\" without an end");
    if (digits.empty() || (rest_[1] == 'u' && digits.size() != 4)) {
      return Refuse("a character without its number");
    }
    Replace(end + (is_braced ? 1 : 0), StrCat("\\x{", digits, "}"));
    return OkStatus();
  }

  Status Escape() {
    if (rest_.size() < 2) return Refuse("\"\\\" at the end");
    const char c = rest_[1];
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_letter && !is_digit) {
      Copy(2);
      return OkStatus();
    }
    switch (c) {
      case 's':
        Replace(2, "\\p{White_Space}");
        return OkStatus();
      case 'S':
        Replace(2, "\\P{White_Space}");
        return OkStatus();
      case 'p':
      case 'P':
        return Property();
      case 'd':
      case 'D':
        return PutMembers(2, MembersOf("Nd"), c == 'D');
      case 'w':
      case 'W':
        return PutMembers(2, OnigurumaWordMembers(), c == 'W');
      case 'h':
      case 'H':
        return PutMembers(2, "0-9a-fA-F", c == 'H');
      case 'v':
        Replace(2, "\\x{B}");
        return OkStatus();
      case 'x':
      case 'u':
        return CodePoint();
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        Copy(2);
        return OkStatus();
      case 'A':
      case 'z':
      case 'Z':
        if (in_set_) break;
        Copy(2);
        return OkStatus();
      case 'b':
      case 'B':
        if (in_set_) break;
        Replace(2, WordBoundary(c == 'b'));
        return OkStatus();
      default:
        break;
    }
    return Refuse(StrCat("\"", rest_.substr(0, 2), "\""));
  }

  static std::string WordBoundary(bool is_boundary) {
    const std::string word = StrCat("[", OnigurumaWordMembers(), "]");
    return is_boundary ? StrCat("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))")
                       : StrCat("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))");
  }

  const std::string_view all_;
  std::string_view rest_;
  std::string out_;
  bool in_set_ = false;
  std::vector<bool> ignore_case_ = {false};  // of the open groups
};

}  // namespace

StatusOr<std::string> ToPcre2(std::string_view expression) { return Translator(expression).Run(); }

std::string NumberMembers() {
  return StrCat(MembersOf("N"), R"(\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6})");
}

std::string WordMembers() {
  return StrCat(MembersOf("L"), MembersOf("M"), MembersOf("Nd"),
                "\\p{Nl}\\p{Pc}\\p{Alphabetic}\\p{Join_Control}");
}

std::string PunctuationPcre2() {
  return StrCat("(?![", kNewPunctuation, "])[!-/:-@\\[-`{-~\\p{P}", kFormerPunctuation, "]");
}

}  // namespace cria::trainer

#include "trainer/tokenizer/normalizer.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/char_class.h"
#include "trainer/tokenizer/nfc.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

using Kind = NormalizerStep::Kind;

bool IsSpace(uint32_t code_point) {
  const CharClass char_class = ClassOf(code_point);
  return char_class == CharClass::kSpace || char_class == CharClass::kNewline;
}

std::string Replace(std::string_view text, const SplitPattern& pattern, std::string_view content) {
  std::string out;
  size_t done = 0;
  pattern.ForEachMatch(text, [&](size_t begin, size_t end) {
    out += text.substr(done, begin - done);
    out += content;
    done = end;
  });
  out += text.substr(done);
  return out;
}

}  // namespace

size_t LeadingSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const int length = Utf8Length(text.data() + at, text.data() + text.size());
    if (length == 0 || !IsSpace(DecodeUtf8(text.data() + at, length))) break;
    at += static_cast<size_t>(length);
  }
  return at;
}

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    const int length = Utf8Length(text.data() + begin, text.data() + end);
    if (static_cast<size_t>(length) != end - begin ||
        !IsSpace(DecodeUtf8(text.data() + begin, length))) {
      break;
    }
    end = begin;
  }
  return text.size() - end;
}

StatusOr<Normalizer> Normalizer::Create(const std::vector<NormalizerStep>& steps) {
  Normalizer normalizer;
  for (const NormalizerStep& step : steps) {
    CompiledStep compiled{step, {}};
    if (step.kind == Kind::kReplaceString) {
      if (step.pattern.empty()) return InvalidArgumentError("normalizer Replace of an empty text");
      compiled.pattern.push_back(SplitPattern::Literal(step.pattern));
    } else if (step.kind == Kind::kReplaceRegex) {
      CRIA_ASSIGN_OR_RETURN(SplitPattern pattern, SplitPattern::Create(step.pattern));
      compiled.pattern.push_back(std::move(pattern));
    }
    normalizer.steps_.push_back(std::move(compiled));
  }
  return normalizer;
}

std::string Normalizer::Apply(std::string_view text) const {
  std::string out;
  ForEachUtf8Run(text, [&](std::string_view run, bool is_valid) {
    if (is_valid) {
      out += ApplyToRun(run);
    } else {
      out += run;
    }
  });
  return out;
}

std::string Normalizer::ApplyToRun(std::string_view run) const {
  std::string text(run);
  for (const auto& [step, pattern] : steps_) {
    switch (step.kind) {
      case Kind::kNfc:
        text = NormalizeNfc(text);
        break;
      case Kind::kNfd:
        text = NormalizeNfd(text);
        break;
      case Kind::kPrepend:
        if (!text.empty()) text = step.content + text;
        break;
      case Kind::kReplaceString:
      case Kind::kReplaceRegex:
        text = Replace(text, pattern[0], step.content);
        break;
      case Kind::kStrip:
        if (step.strip_right) text.resize(text.size() - TrailingSpace(text));
        if (step.strip_left) text.erase(0, LeadingSpace(text));
        break;
    }
  }
  return text;
}

}  // namespace cria::trainer

#include "trainer/tokenizer/pretokenizer.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/pattern_dialect.h"

namespace cria::trainer {
namespace {

using Kind = PreTokenizerStep::Kind;

struct Part {
  size_t begin;
  size_t end;
  bool is_match;
};

// The matches and what lies between them; with `invert` each is taken for the other.
std::vector<Part> FindParts(const SplitPattern& pattern, std::string_view text, bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  pattern.ForEachMatch(text, [&](size_t begin, size_t end) {
    if (begin > done) parts.push_back({done, begin, invert});
    parts.push_back({begin, end, !invert});
    done = end;
  });
  if (done < text.size()) parts.push_back({done, text.size(), invert});
  return parts;
}

// Joins neighbours as `behavior` says; the parts are in order, and the result is.
std::vector<Part> JoinParts(std::vector<Part> parts, SplitBehavior behavior) {
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  const bool is_contiguous = behavior == SplitBehavior::kContiguous;
  if (backwards) std::reverse(parts.begin(), parts.end());
  std::vector<Part> joined;
  bool previous_is_match = false;
  for (const Part& part : parts) {
    const bool joins =
        is_contiguous ? part.is_match == previous_is_match : part.is_match && !previous_is_match;
    if (joins && !joined.empty()) {
      if (backwards) {
        joined.back().begin = part.begin;
      } else {
        joined.back().end = part.end;
      }
    } else {
      joined.push_back(part);
    }
    previous_is_match = part.is_match;
  }
  if (backwards) std::reverse(joined.begin(), joined.end());
  return joined;
}

SplitBehavior BehaviorOf(const PreTokenizerStep& step) {
  switch (step.kind) {
    case Kind::kDigits:
      return step.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    case Kind::kWhitespaceSplit:
      return SplitBehavior::kRemoved;
    default:
      return step.behavior;
  }
}

void SplitByStep(const PreTokenizerStep& step, const SplitPattern& pattern, std::string_view text,
                 std::vector<std::string_view>* pieces) {
  const SplitBehavior behavior = BehaviorOf(step);
  std::vector<Part> parts = FindParts(pattern, text, step.invert);
  const bool removes = behavior == SplitBehavior::kRemoved;
  if (!removes && behavior != SplitBehavior::kIsolated) {
    parts = JoinParts(std::move(parts), behavior);
  }
  for (const Part& part : parts) {
    if (part.end == part.begin || (removes && part.is_match)) continue;
    pieces->push_back(text.substr(part.begin, part.end - part.begin));
  }
}

StatusOr<SplitPattern> CompileStep(const PreTokenizerStep& step) {
  switch (step.kind) {
    case Kind::kRegex:
      return SplitPattern::Create(step.pattern);
    case Kind::kString:
      if (step.pattern.empty()) return InvalidArgumentError("pre_tokenizer Split by an empty text");
      return SplitPattern::Literal(step.pattern);
    case Kind::kDigits:
      return SplitPattern::CreatePcre2(StrCat("[", NumberMembers(), "]"), "digits");
    case Kind::kPunctuation:
      return SplitPattern::CreatePcre2(PunctuationPcre2(), "punctuation");
    case Kind::kWhitespaceSplit:
      return SplitPattern::Create("\\s");
    case Kind::kByteLevel:
      return SplitPattern::Create(kGpt2Pattern);
  }
  return InternalError("a pre-tokenizer step of no kind");
}

}  // namespace

StatusOr<Pretokenizer> Pretokenizer::Create(std::vector<std::string> expressions, Engine engine) {
  Pretokenizer pretokenizer;
  for (const std::string& expression : expressions) {
    CRIA_ASSIGN_OR_RETURN(SplitPattern pattern, SplitPattern::Create(expression));
    pretokenizer.patterns_.push_back(std::move(pattern));
  }
  pretokenizer.is_llama3_ =
      engine == Engine::kFastest && expressions.size() == 1 && expressions[0] == kLlama3Pattern;
  pretokenizer.expressions_ = std::move(expressions);
  return pretokenizer;
}

StatusOr<Pretokenizer> Pretokenizer::CreateFromSteps(const std::vector<PreTokenizerStep>& steps) {
  const auto num_byte_level =
      std::count_if(steps.begin(), steps.end(),
                    [](const PreTokenizerStep& step) { return step.kind == Kind::kByteLevel; });
  if (num_byte_level != 1) {
    return InvalidArgumentError("pre_tokenizer with ", num_byte_level,
                                " ByteLevel steps, expected one");
  }
  Pretokenizer pretokenizer;
  for (const PreTokenizerStep& step : steps) {
    CRIA_ASSIGN_OR_RETURN(SplitPattern pattern, CompileStep(step));
    pretokenizer.steps_.push_back({step, std::move(pattern)});
  }
  return pretokenizer;
}

std::vector<std::string_view> Pretokenizer::SplitByPatterns(std::string_view run) const {
  std::vector<std::string_view> pieces = {run};
  for (const SplitPattern& pattern : patterns_) {
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) pattern.Split(piece, &finer);
    pieces = std::move(finer);
  }
  return pieces;
}

void Pretokenizer::ForEachStepPiece(std::string_view text,
                                    const std::function<void(std::string_view)>& emit) const {
  bool is_first = true;
  ForEachUtf8Run(text, [&](std::string_view run, bool is_valid) {
    if (is_valid) {
      SplitRunBySteps(run, is_first, emit);
    } else {
      emit(run);
    }
    is_first = false;
  });
}

// Before kByteLevel pieces are text, after it they are text of the byte alphabet: steps that follow
// see its letters ("Ã²" for "ò", of which the second is a number).
void Pretokenizer::SplitRunBySteps(std::string_view run, bool is_first,
                                   const std::function<void(std::string_view)>& emit) const {
  std::deque<std::string> storage;  // of pieces that are not in the text
  const auto keep = [&storage](std::string text) -> std::string_view {
    return storage.emplace_back(std::move(text));
  };
  std::vector<std::string_view> pieces = {run};
  bool in_alphabet = false;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto& [step, pattern] = steps_[i];
    std::vector<std::string_view> finer;
    for (std::string_view piece : pieces) {
      if (step.kind != Kind::kByteLevel) {
        SplitByStep(step, pattern, piece, &finer);
        continue;
      }
      if (step.add_prefix_space && is_first && !piece.starts_with(' ')) {
        piece = keep(StrCat(" ", piece));
      }
      if (step.use_regex) {
        pattern.Split(piece, &finer);
      } else {
        finer.push_back(piece);
      }
    }
    if (step.kind == Kind::kByteLevel && i + 1 < steps_.size()) {
      for (std::string_view& piece : finer) piece = keep(ToAlphabet(piece));
      in_alphabet = true;
    }
    pieces = std::move(finer);
  }
  std::string bytes;
  for (const std::string_view piece : pieces) {
    if (!in_alphabet) {
      emit(piece);
      continue;
    }
    FromAlphabet(piece, &bytes);  // made by ToAlphabet above
    emit(bytes);
  }
}

}  // namespace cria::trainer

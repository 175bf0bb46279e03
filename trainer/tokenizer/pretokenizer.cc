#include "trainer/tokenizer/pretokenizer.h"

#include <utility>

namespace cria::trainer {

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

std::vector<std::string_view> Pretokenizer::SplitByPatterns(std::string_view run) const {
  std::vector<std::string_view> pieces = {run};
  for (const SplitPattern& pattern : patterns_) {
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) pattern.Split(piece, &finer);
    pieces = std::move(finer);
  }
  return pieces;
}

}  // namespace cria::trainer

#include "trainer/tokenizer/pre_tokenizer_step.h"

#include "base/check.h"

namespace cria::trainer {
namespace {

struct NamedBehavior {
  SplitBehavior behavior;
  const char* name;
};
constexpr NamedBehavior kBehaviors[] = {
    {SplitBehavior::kIsolated, "Isolated"},
    {SplitBehavior::kRemoved, "Removed"},
    {SplitBehavior::kMergedWithPrevious, "MergedWithPrevious"},
    {SplitBehavior::kMergedWithNext, "MergedWithNext"},
    {SplitBehavior::kContiguous, "Contiguous"},
};

}  // namespace

const char* SplitBehaviorName(SplitBehavior behavior) {
  for (const NamedBehavior& named : kBehaviors) {
    if (named.behavior == behavior) return named.name;
  }
  CRIA_CHECK(false, "split behavior ", static_cast<int>(behavior));
}

std::optional<SplitBehavior> SplitBehaviorOf(std::string_view name) {
  for (const NamedBehavior& named : kBehaviors) {
    if (named.name == name) return named.behavior;
  }
  return std::nullopt;
}

}  // namespace cria::trainer

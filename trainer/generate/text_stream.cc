#include "trainer/generate/text_stream.h"

#include <algorithm>
#include <utility>

namespace cria::trainer {

std::string StopMatcher::Push(std::string_view text) {
  if (stopped_) return {};
  const size_t first_new = held_.size();
  held_ += text;
  if (CutAtStop(first_new)) return std::exchange(held_, {});
  const size_t ready = held_.size() - HeldSuffix();
  std::string out = held_.substr(0, ready);
  held_.erase(0, ready);
  return out;
}

std::string StopMatcher::Finish() { return std::exchange(held_, {}); }

// Cuts held_ before the stop string that ends first in it; what came before `first_new` has none.
bool StopMatcher::CutAtStop(size_t first_new) {
  size_t first_end = std::string::npos;
  size_t begin = 0;
  for (const std::string& stop : stop_) {
    const size_t from = first_new < stop.size() ? 0 : first_new - stop.size() + 1;
    const size_t at = held_.find(stop, from);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < begin)) {
      first_end = end;
      begin = at;
    }
  }
  if (first_end == std::string::npos) return false;
  held_.resize(begin);
  stopped_ = true;
  return true;
}

// The length of the longest end of held_ that is the beginning of a stop string.
size_t StopMatcher::HeldSuffix() const {
  size_t longest = 0;
  for (const std::string& stop : stop_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

std::string TextStream::Finish() {
  // The last, incomplete character may complete a stop string too: its U+FFFD.
  std::string text = matcher_.Push(ReplaceInvalidUtf8(decoder_.Finish()));
  return text + matcher_.Finish();
}

}  // namespace cria::trainer

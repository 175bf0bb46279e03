#include "trainer/generate/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "base/rng.h"

namespace cria::trainer {
namespace {

// No branch in the loop, and integers: compilers turn it into vector code.
bool AllFinite(std::span<const float> x) {
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t bad = 0;
  for (const float value : x) bad |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent;
  return bad == 0;
}

Status NotFiniteError(std::span<const float> logits) {
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  return DataLossError("the logit of token ", bad - logits.begin(), " of ", logits.size(), " is ",
                       *bad, ": the model's weights are damaged or diverged");
}

// The first of the largest.
size_t ArgMax(std::span<const float> x) {
  return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

// Larger probabilities first, of equal ones the lower id.
bool ComesFirst(const TokenSampler::Candidate& a, const TokenSampler::Candidate& b) {
  return a.probability > b.probability || (a.probability == b.probability && a.id < b.id);
}

}  // namespace

Status Validate(const SamplingOptions& options) {
  const auto check = [](bool ok, const char* name, double value, const char* range) -> Status {
    if (ok && std::isfinite(value)) return OkStatus();
    return InvalidArgumentError(name, " ", value, ": must be ", range);
  };
  CRIA_RETURN_IF_ERROR(
      check(options.temperature >= 0, "temperature", options.temperature, "0 or more"));
  CRIA_RETURN_IF_ERROR(check(options.top_k >= 0, "top-k", static_cast<double>(options.top_k),
                             "0 (all tokens) or more"));
  CRIA_RETURN_IF_ERROR(
      check(options.top_p >= 0 && options.top_p <= 1, "top-p", options.top_p, "in [0, 1]"));
  CRIA_RETURN_IF_ERROR(
      check(options.min_p >= 0 && options.min_p <= 1, "min-p", options.min_p, "in [0, 1]"));
  return check(options.repetition_penalty > 0, "repetition-penalty", options.repetition_penalty,
               "more than 0 (1: none)");
}

double UniformAt(uint64_t seed, uint64_t prompt_index, int64_t position) {
  return Rng(seed, StreamOf("generate") + prompt_index).Uniform(static_cast<uint64_t>(position));
}

StatusOr<std::span<const TokenSampler::Candidate>> TokenSampler::Distribution(
    std::span<const float> logits, std::span<const int32_t> history,
    const SamplingOptions& options) {
  CRIA_CHECK(!logits.empty());
  if (!AllFinite(logits)) return NotFiniteError(logits);
  logits_.assign(logits.begin(), logits.end());
  if (options.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(options.repetition_penalty);
    for (const int32_t id : history) {
      // From the model's logit each time, so that a token that occurs twice is punished once.
      const float logit = logits[static_cast<size_t>(id)];
      logits_[static_cast<size_t>(id)] = logit < 0 ? logit * penalty : logit / penalty;
    }
    if (!AllFinite(logits_)) {
      return InvalidArgumentError("repetition-penalty ", options.repetition_penalty,
                                  " takes logits out of the range of fp32");
    }
  }
  const size_t best = ArgMax(logits_);
  candidates_.clear();
  if (options.temperature == 0) {
    candidates_.push_back({.id = static_cast<int32_t>(best), .probability = 1});
    return candidates_;
  }
  KeepTopK(options.top_k);
  const double top = logits_[best];
  for (Candidate& c : candidates_) {
    c.probability = std::exp((static_cast<double>(logits_[static_cast<size_t>(c.id)]) - top) /
                             options.temperature);
  }
  KeepTopP(options.top_p, options.min_p);
  double total = 0;
  for (const Candidate& c : candidates_) total += c.probability;
  for (Candidate& c : candidates_) c.probability /= total;
  return candidates_;
}

// Fills candidates_ with the ids that stay.
void TokenSampler::KeepTopK(int64_t top_k) {
  const auto vocab = static_cast<int64_t>(logits_.size());
  float threshold = -HUGE_VALF;
  if (top_k > 0 && top_k < vocab) {
    order_ = logits_;
    std::nth_element(order_.begin(), order_.begin() + (top_k - 1), order_.end(), std::greater<>());
    threshold = order_[static_cast<size_t>(top_k - 1)];
  }
  for (int64_t id = 0; id < vocab; ++id) {
    if (logits_[static_cast<size_t>(id)] >= threshold) {
      candidates_.push_back({.id = static_cast<int32_t>(id)});
    }
  }
}

// Probabilities are relative to the largest, which is 1. Both cuts keep the first of the descending
// order, so it does not matter that min-p is cut first here; top-p's mass is of all.
void TokenSampler::KeepTopP(double top_p, double min_p) {
  double total = 0;
  if (top_p < 1) {
    for (const Candidate& c : candidates_) total += c.probability;
  }
  if (min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.probability < min_p; });
  }
  if (top_p >= 1) return;
  // Where the descending order reaches the mass, found by halving the part in which it does: 2 n
  // steps, where sorting 128,256 tokens would cost more than all else.
  const double wanted = top_p * total;
  double before = 0;  // mass of [begin, low), less than wanted
  auto low = candidates_.begin();
  auto high = candidates_.end();
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, ComesFirst);
    double mass = 0;
    for (auto c = low; c != middle; ++c) mass += c->probability;
    if (before + mass >= wanted) {
      high = middle;
    } else {
      before += mass;
      low = middle;
    }
  }
  candidates_.erase(high, candidates_.end());
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

StatusOr<int32_t> TokenSampler::Sample(std::span<const float> logits,
                                       std::span<const int32_t> history,
                                       const SamplingOptions& options, double u) {
  CRIA_ASSIGN_OR_RETURN(const std::span<const Candidate> candidates,
                        Distribution(logits, history, options));
  double left = u;
  int32_t last = candidates.front().id;
  for (const Candidate& c : candidates) {
    left -= c.probability;
    if (left < 0) return c.id;
    // Rounding may leave a crumb of u: it is for the last that can be drawn at all.
    if (c.probability > 0) last = c.id;
  }
  return last;
}

}  // namespace cria::trainer

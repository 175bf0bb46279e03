#include "trainer/loop/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace cria::trainer {

int32_t ChooseToken(const std::vector<float>& logits, const SamplerOptions& options, double u) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return static_cast<int32_t>(best - logits.begin());
  // The candidates in descending order; equal logits in order of their ids.
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t count =
      options.top_k > 0 ? std::min(order.size(), static_cast<size_t>(options.top_k)) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(count), order.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = logits[static_cast<size_t>(a)];
                      const float y = logits[static_cast<size_t>(b)];
                      return x > y || (x == y && a < b);
                    });
  std::vector<double> weights(count);
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    const double logit = logits[static_cast<size_t>(order[i])];
    weights[i] = std::exp((logit - static_cast<double>(*best)) / options.temperature);
    total += weights[i];
  }
  double left = u * total;
  for (size_t i = 0; i < count; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[count - 1];
}

std::vector<std::string> Sampler::Continue(const std::vector<std::string>& prompts,
                                           int64_t num_tokens) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    texts.push_back(ContinueOne(prompts[i], i, num_tokens));
  }
  return texts;
}

std::string Sampler::ContinueOne(const std::string& prompt, uint64_t stream, int64_t num_tokens) {
  std::vector<int32_t> ids;
  if (tokenizer_->bos_id()) ids.push_back(*tokenizer_->bos_id());
  tokenizer_->Encode(prompt, &ids);
  const Rng rng(options_.seed, StreamOf("sampler") + stream);
  const int64_t vocab = model_->config().vocab;
  std::vector<float> logits(static_cast<size_t>(vocab));
  const auto known = [&](int32_t id) { return id < vocab; };
  if (ids.empty() || !std::all_of(ids.begin(), ids.end(), known)) return prompt;
  std::vector<int32_t> positions(static_cast<size_t>(options_.max_time));
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<int32_t> doc_start(positions.size(), 0);
  for (int64_t i = 0; i < num_tokens; ++i) {
    const auto time = static_cast<int64_t>(ids.size());
    if (time >= options_.max_time) break;
    const auto view = [&](std::vector<int32_t>& x) {
      return model::Tensor(x.data(), model::DType::kI32, {time});
    };
    const model::TokenBatch batch = {.batch = 1,
                                     .time = time,
                                     .tokens = view(ids),
                                     .targets = {},
                                     .positions = view(positions),
                                     .doc_start = view(doc_start)};
    model_->Logits(batch, time - 1, time,
                   model::Tensor(logits.data(), model::DType::kF32, {1, vocab}));
    const int32_t next = ChooseToken(logits, options_, rng.Uniform(static_cast<uint64_t>(i)));
    if (tokenizer_->eos_id() && next == *tokenizer_->eos_id()) break;
    ids.push_back(next);
  }
  return tokenizer_->Decode(ids, /*skip_special=*/true);
}

}  // namespace cria::trainer

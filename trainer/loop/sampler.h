// Text from a model: a few continuations, token by token, greedy or by seeded sampling.
//
//   Sampler sampler(&model, &tokenizer, {.temperature = 0.7, .top_k = 40, .seed = 1});
//   std::vector<std::string> texts = sampler.Continue({"In the beginning"}, 60);
//
// Each new token runs the whole prefix through the model again: right for the last lines of a
// training run, not for serving. Every random number is a function of (seed, prompt, position).
// Single-threaded.

#ifndef CRIA_TRAINER_LOOP_SAMPLER_H_
#define CRIA_TRAINER_LOOP_SAMPLER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/llama/llama.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

struct SamplerOptions {
  double temperature = 0;  // 0: the most likely token
  int64_t top_k = 0;       // only the k most likely; 0: all
  uint64_t seed = 0;
  int64_t max_time = 256;  // tokens of prompt and continuation; the model's own limit
};

// The token that follows `logits`: the most likely, or one drawn with u in [0, 1).
int32_t ChooseToken(const std::vector<float>& logits, const SamplerOptions& options, double u);

class Sampler {
 public:
  Sampler(model::Llama* model, const Tokenizer* tokenizer, const SamplerOptions& options)
      : model_(model), tokenizer_(tokenizer), options_(options) {}

  // Prompt and continuation of up to num_tokens tokens each; ends at <|end_of_text|> or at
  // max_time.
  std::vector<std::string> Continue(const std::vector<std::string>& prompts, int64_t num_tokens);

 private:
  std::string ContinueOne(const std::string& prompt, uint64_t stream, int64_t num_tokens);

  model::Llama* const model_;
  const Tokenizer* const tokenizer_;
  const SamplerOptions options_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_SAMPLER_H_

// Generator: texts from prompts. It owns the order of work: which prompt is in which of the
// decoder's sequences, prompts in chunks, a step for all sequences at once, the end of each.
//
//   Generator generator(decoder.get(), &tokenizer, RealClock());
//   GenerateOptions options = {.max_tokens = 64, .eos_ids = files.eos_ids};
//   options.stop = {"\n\n"};
//   CRIA_ASSIGN_OR_RETURN(const std::vector<Generation> out,
//                         generator.Run({{.ids = {1, 17, 9}}, {.ids = {1, 5}}}, options));
//
//   waiting prompts --> free sequence --> prefill (chunks of max_rows tokens, several prompts in
//                          ^              one) --> decode steps (a token of each) --+
//                          +---------------- eos, stop string, length --------------+
//
// A prompt whose beginning is in a cache already (the turns of a chat before this one, the same
// prompt for another sequence) only runs the rest. With an fp32 decoder none of this shows in the
// result: tokens depend on the prompt, the options and the prompt's index alone.
//
// Single-threaded; the decoder has threads inside. The decoder, tokenizer and clock outlive it;
// between calls nobody else uses the decoder's sequences. The tokenizer may be null (ids only).

#ifndef CRIA_TRAINER_GENERATE_GENERATOR_H_
#define CRIA_TRAINER_GENERATE_GENERATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/llama/decoder.h"
#include "trainer/generate/sampling.h"
#include "trainer/generate/text_stream.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

struct Prompt {
  std::vector<int32_t> ids;
  uint64_t index = 0;  // which random numbers are its own (sampling.h)
};

enum class FinishReason {
  kEos,          // an end-of-sequence token
  kStop,         // a stop string
  kLength,       // max_tokens, or the sequence is as long as the decoder allows
  kInterrupted,  // the caller's `stop` was set
};

// "eos", "stop", "length", "interrupted".
const char* FinishReasonName(FinishReason reason);

struct GenerateOptions {
  SamplingOptions sampling = {};
  int64_t max_tokens = 128;
  std::vector<int32_t> eos_ids = {};   // empty: nothing ends a text but its length
  std::vector<std::string> stop = {};  // needs a tokenizer; valid UTF-8, none empty
  bool show_special = false;           // special tokens are part of the text
};

struct Generation {
  // All that were generated: the end-of-sequence token and the tokens of a stop string included.
  std::vector<int32_t> ids;
  // Valid UTF-8 (text_stream.h), without the stop string; empty without a tokenizer.
  std::string text;
  FinishReason reason = FinishReason::kLength;
};

// Sums over all calls. A prompt's first new token comes with the prompt.
struct GenerateStats {
  int64_t prompt_tokens = 0;  // run through the model
  int64_t cached_tokens = 0;  // of prompts, found in a cache
  double prompt_seconds = 0;
  int64_t decode_tokens = 0;
  int64_t decode_steps = 0;
  double decode_seconds = 0;  // the model and the choice of tokens

  double PromptTokensPerSecond() const { return Rate(prompt_tokens, prompt_seconds); }
  double DecodeTokensPerSecond() const { return Rate(decode_tokens, decode_seconds); }

 private:
  static double Rate(int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
};

class Generator {
 public:
  // Called for each piece of text as it becomes certain, with the prompt's place in the list.
  using OnText = std::function<void(size_t place, std::string_view text)>;
  // Called when a prompt's generation is complete, in any order.
  using OnDone = std::function<void(size_t place, const Generation& generation)>;

  struct Callbacks {
    OnText on_text = nullptr;
    OnDone on_done = nullptr;
    // Not null and not zero: end after the step in progress. What there is comes back.
    const std::atomic<int>* stop = nullptr;
  };

  Generator(model::LlamaDecoder* decoder, const Tokenizer* tokenizer, Clock* clock);

  // A generation for each prompt, in their order.
  // InvalidArgument, before anything runs: an empty prompt, an id that the model does not have, a
  // prompt longer than a sequence may be (with both numbers), bad options. DataLoss: a logit that
  // is not finite, with the prompt and the position.
  StatusOr<std::vector<Generation>> Run(std::span<const Prompt> prompts,
                                        const GenerateOptions& options, const Callbacks& callbacks);
  StatusOr<std::vector<Generation>> Run(const std::vector<Prompt>& prompts,
                                        const GenerateOptions& options) {
    return Run(prompts, options, Callbacks());
  }

  const GenerateStats& stats() const { return stats_; }

 private:
  // One of the decoder's sequences.
  struct Slot {
    int64_t sequence = 0;
    bool busy = false;
    size_t place = 0;  // of its prompt
    // Prompt and generated. The decoder's cache holds the first length(sequence) of them, also
    // when the slot is free.
    std::vector<int32_t> ids;
    std::unique_ptr<TextStream> text;
  };
  // What one Run works on.
  struct Job {
    std::span<const Prompt> prompts;
    const GenerateOptions* options = nullptr;
    const Callbacks* callbacks = nullptr;
    size_t next = 0;  // the first prompt that still waits
    std::vector<Generation> results = {};
  };

  Status Check(std::span<const Prompt> prompts, const GenerateOptions& options) const;
  std::vector<Slot*> Admit(Job* job);
  Slot* FreeSlotFor(std::span<const int32_t> ids, const std::vector<Slot*>& admitted);
  int64_t CachedPrefix(const Slot& slot, std::span<const int32_t> ids) const;
  Status Prefill(const std::vector<Slot*>& admitted, Job* job);
  Status DecodeStep(Job* job);
  Status TakeTokens(const std::vector<Slot*>& slots, const model::Tensor& logits, Job* job);
  void AddToken(Slot* slot, int32_t id, Job* job);
  void Finish(Slot* slot, FinishReason reason, Job* job);
  bool Stopped(const Job& job) const;

  model::LlamaDecoder* const decoder_;
  const Tokenizer* const tokenizer_;
  Clock* const clock_;
  std::vector<Slot> slots_;
  std::vector<TokenSampler> samplers_;  // one a slot: rows are sampled in parallel
  GenerateStats stats_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_GENERATE_GENERATOR_H_

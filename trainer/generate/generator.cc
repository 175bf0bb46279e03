#include "trainer/generate/generator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

// Tokens from which on copying another sequence's cache is worth it.
constexpr int64_t kCopyTokensMin = 16;

int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(n), b.begin()).first - a.begin();
}

Status CheckStopStrings(const std::vector<std::string>& stop, bool has_tokenizer) {
  for (const std::string& text : stop) {
    if (text.empty()) return InvalidArgumentError("a stop string is empty");
    if (ValidUtf8Prefix(text) != text.size()) {
      return InvalidArgumentError("a stop string is not UTF-8: \"", ReplaceInvalidUtf8(text), "\"");
    }
  }
  if (stop.empty() || has_tokenizer) return OkStatus();
  return InvalidArgumentError("stop strings need a tokenizer, and the model has none");
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kInterrupted:
      return "interrupted";
  }
  return "unknown";
}

Generator::Generator(model::LlamaDecoder* decoder, const Tokenizer* tokenizer, Clock* clock)
    : decoder_(decoder), tokenizer_(tokenizer), clock_(clock) {
  const auto count = static_cast<size_t>(decoder->options().max_sequences);
  slots_.resize(count);
  samplers_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    slots_[i].sequence = static_cast<int64_t>(i);
    decoder->Truncate(slots_[i].sequence, 0);
  }
}

Status Generator::Check(std::span<const Prompt> prompts, const GenerateOptions& options) const {
  CRIA_RETURN_IF_ERROR(Validate(options.sampling));
  CRIA_RETURN_IF_ERROR(CheckStopStrings(options.stop, tokenizer_ != nullptr));
  if (options.max_tokens < 0) {
    return InvalidArgumentError("max-tokens ", options.max_tokens, ": must be 0 or more");
  }
  const int64_t limit = decoder_->options().max_positions;
  const int64_t vocab = decoder_->config().vocab;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int32_t>& ids = prompts[i].ids;
    if (ids.empty()) return InvalidArgumentError("prompt ", i + 1, " has no tokens");
    if (static_cast<int64_t>(ids.size()) > limit) {
      return InvalidArgumentError("prompt ", i + 1, " has ", ids.size(),
                                  " tokens; a sequence has room for ", limit);
    }
    for (size_t at = 0; at < ids.size(); ++at) {
      if (ids[at] >= 0 && ids[at] < vocab) continue;
      return InvalidArgumentError("prompt ", i + 1, ", token ", at, ": id ", ids[at],
                                  "; the model has ids 0 to ", vocab - 1);
    }
  }
  return OkStatus();
}

bool Generator::Stopped(const Job& job) const {
  return job.callbacks->stop != nullptr && *job.callbacks->stop != 0;
}

StatusOr<std::vector<Generation>> Generator::Run(std::span<const Prompt> prompts,
                                                 const GenerateOptions& options,
                                                 const Callbacks& callbacks) {
  CRIA_RETURN_IF_ERROR(Check(prompts, options));
  Job job = {.prompts = prompts, .options = &options, .callbacks = &callbacks};
  job.results.resize(prompts.size());
  // After a run that ended with an error, sequences may be left over.
  for (Slot& slot : slots_) slot.busy = false;
  const auto busy = [&] {
    return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.busy; });
  };
  while (!Stopped(job)) {
    const std::vector<Slot*> admitted = Admit(&job);
    if (!admitted.empty()) {
      CRIA_RETURN_IF_ERROR(Prefill(admitted, &job));
    } else if (busy()) {
      CRIA_RETURN_IF_ERROR(DecodeStep(&job));
    } else {
      return std::move(job.results);
    }
  }
  for (Slot& slot : slots_) {
    if (slot.busy) Finish(&slot, FinishReason::kInterrupted, &job);
  }
  for (size_t place = job.next; place < prompts.size(); ++place) {
    job.results[place].reason = FinishReason::kInterrupted;
    if (callbacks.on_done) callbacks.on_done(place, job.results[place]);
  }
  return std::move(job.results);
}

// Tokens of a prompt that need not run again: at least the last one does, for its logits.
int64_t Generator::CachedPrefix(const Slot& slot, std::span<const int32_t> ids) const {
  const auto cached = static_cast<size_t>(decoder_->length(slot.sequence));
  return CommonPrefix(std::span(slot.ids).first(cached), ids.first(ids.size() - 1));
}

// Gives waiting prompts to free slots, in order; their cached beginnings are in place then.
std::vector<Generator::Slot*> Generator::Admit(Job* job) {
  std::vector<Slot*> admitted;
  while (job->next < job->prompts.size()) {
    const size_t place = job->next;
    const Prompt& prompt = job->prompts[place];
    const auto length = static_cast<int64_t>(prompt.ids.size());
    if (job->options->max_tokens == 0 || length == decoder_->options().max_positions) {
      ++job->next;  // no room for a single token
      if (job->callbacks->on_done) job->callbacks->on_done(place, job->results[place]);
      continue;
    }
    Slot* const slot = FreeSlotFor(prompt.ids, admitted);
    if (slot == nullptr) break;
    ++job->next;
    slot->busy = true;
    slot->place = place;
    slot->ids = prompt.ids;
    stats_.cached_tokens += decoder_->length(slot->sequence);
    if (tokenizer_ != nullptr) {
      slot->text = std::make_unique<TextStream>(
          tokenizer_, TextStreamOptions{.stop = job->options->stop,
                                        .skip_special = !job->options->show_special});
    }
    admitted.push_back(slot);
  }
  return admitted;
}

// A free slot whose cache holds the longest beginning of `ids` that any slot holds, cut to it. Null
// when none is free, or when the prompt had better wait for one of `admitted` to run what both
// begin with.
Generator::Slot* Generator::FreeSlotFor(std::span<const int32_t> ids,
                                        const std::vector<Slot*>& admitted) {
  Slot* best_free = nullptr;
  Slot* source = nullptr;
  int64_t free_prefix = -1, source_prefix = -1;
  for (Slot& slot : slots_) {
    const int64_t prefix = CachedPrefix(slot, ids);
    // Of equally good ones, the one whose cache is the least loss.
    const bool better = prefix > free_prefix ||
                        (prefix == free_prefix &&
                         decoder_->length(slot.sequence) < decoder_->length(best_free->sequence));
    if (!slot.busy && better) {
      best_free = &slot;
      free_prefix = prefix;
    }
    if (prefix > source_prefix) {
      source = &slot;
      source_prefix = prefix;
    }
  }
  if (best_free == nullptr) return nullptr;
  for (const Slot* other : admitted) {
    const int64_t shared = CommonPrefix(other->ids, ids.first(ids.size() - 1));
    if (shared >= source_prefix + kCopyTokensMin) return nullptr;
  }
  if (source_prefix >= free_prefix + kCopyTokensMin) {
    decoder_->CopySequence(source->sequence, best_free->sequence);
    free_prefix = source_prefix;
  }
  decoder_->Truncate(best_free->sequence, free_prefix);
  return best_free;
}

// Runs what of the prompts is not in the cache, and takes the first token of each.
Status Generator::Prefill(const std::vector<Slot*>& admitted, Job* job) {
  const double start_s = clock_->MonotonicSeconds();
  size_t first = 0;  // the first slot whose prompt is not through
  while (first < admitted.size() && !Stopped(*job)) {
    std::vector<model::LlamaDecoder::Piece> pieces;
    std::vector<Slot*> complete;
    int64_t rows_left = decoder_->options().max_rows;
    for (size_t i = first; i < admitted.size() && rows_left > 0; ++i) {
      if (static_cast<int64_t>(complete.size()) == decoder_->options().max_logits) break;
      Slot* const slot = admitted[i];
      const auto done = static_cast<size_t>(decoder_->length(slot->sequence));
      const std::span<const int32_t> rest = std::span(slot->ids).subspan(done);
      const size_t count = std::min(rest.size(), static_cast<size_t>(rows_left));
      rows_left -= static_cast<int64_t>(count);
      const bool is_last = count == rest.size();
      if (is_last) complete.push_back(slot);
      pieces.push_back(
          {.sequence = slot->sequence,
           .tokens = rest.first(count),
           .want = is_last ? model::LlamaDecoder::Want::kLast : model::LlamaDecoder::Want::kNone});
      stats_.prompt_tokens += static_cast<int64_t>(count);
    }
    const model::Tensor logits = decoder_->Forward(pieces);
    first += complete.size();
    CRIA_RETURN_IF_ERROR(TakeTokens(complete, logits, job));
  }
  stats_.prompt_seconds += clock_->MonotonicSeconds() - start_s;
  return OkStatus();
}

// One token for each busy slot.
Status Generator::DecodeStep(Job* job) {
  const double start_s = clock_->MonotonicSeconds();
  std::vector<Slot*> busy;
  for (Slot& slot : slots_) {
    if (slot.busy) busy.push_back(&slot);
  }
  const model::DecoderOptions& limits = decoder_->options();
  const auto batch = static_cast<size_t>(std::min(limits.max_rows, limits.max_logits));
  for (size_t begin = 0; begin < busy.size(); begin += batch) {
    const size_t end = std::min(busy.size(), begin + batch);
    const std::vector<Slot*> slots(busy.begin() + static_cast<int64_t>(begin),
                                   busy.begin() + static_cast<int64_t>(end));
    std::vector<model::LlamaDecoder::Piece> pieces;
    for (const Slot* slot : slots) {
      pieces.push_back({.sequence = slot->sequence, .tokens = std::span(slot->ids).last(1)});
    }
    const model::Tensor logits = decoder_->Forward(pieces);
    CRIA_RETURN_IF_ERROR(TakeTokens(slots, logits, job));
  }
  stats_.decode_tokens += static_cast<int64_t>(busy.size());
  stats_.decode_steps += 1;
  stats_.decode_seconds += clock_->MonotonicSeconds() - start_s;
  return OkStatus();
}

// Chooses the next token of each slot from its row of logits.
Status Generator::TakeTokens(const std::vector<Slot*>& slots, const model::Tensor& logits,
                             Job* job) {
  const auto count = static_cast<int64_t>(slots.size());
  const SamplingOptions& sampling = job->options->sampling;
  std::vector<StatusOr<int32_t>> chosen(slots.size(), 0);
  ParallelFor(count, [&](int64_t i) {
    const Slot& slot = *slots[static_cast<size_t>(i)];
    const std::span row(logits.Rows(i, i + 1).f32(), static_cast<size_t>(logits.dim(1)));
    const double u = UniformAt(sampling.seed, job->prompts[slot.place].index,
                               static_cast<int64_t>(slot.ids.size()));
    chosen[static_cast<size_t>(i)] =
        samplers_[static_cast<size_t>(slot.sequence)].Sample(row, slot.ids, sampling, u);
  });
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!chosen[i].ok()) {
      return Annotate(chosen[i].status(),
                      StrCat("prompt ", slots[i]->place + 1, ", position ", slots[i]->ids.size()));
    }
    AddToken(slots[i], *chosen[i], job);
  }
  return OkStatus();
}

void Generator::AddToken(Slot* slot, int32_t id, Job* job) {
  const GenerateOptions& options = *job->options;
  Generation& result = job->results[slot->place];
  slot->ids.push_back(id);
  result.ids.push_back(id);
  const bool is_eos =
      std::find(options.eos_ids.begin(), options.eos_ids.end(), id) != options.eos_ids.end();
  if (slot->text != nullptr && (!is_eos || options.show_special)) {
    const std::string text = slot->text->Push(id);
    result.text += text;
    if (!text.empty() && job->callbacks->on_text) job->callbacks->on_text(slot->place, text);
  }
  const bool is_full = static_cast<int64_t>(result.ids.size()) >= options.max_tokens ||
                       static_cast<int64_t>(slot->ids.size()) >= decoder_->options().max_positions;
  if (is_eos) return Finish(slot, FinishReason::kEos, job);
  if (slot->text != nullptr && slot->text->stopped()) {
    return Finish(slot, FinishReason::kStop, job);
  }
  if (is_full) Finish(slot, FinishReason::kLength, job);
}

void Generator::Finish(Slot* slot, FinishReason reason, Job* job) {
  Generation& result = job->results[slot->place];
  result.reason = reason;
  if (slot->text != nullptr) {
    const std::string text = slot->text->Finish();
    result.text += text;
    if (!text.empty() && job->callbacks->on_text) job->callbacks->on_text(slot->place, text);
    if (slot->text->stopped()) result.reason = FinishReason::kStop;
  }
  slot->text.reset();
  slot->busy = false;
  if (job->callbacks->on_done) job->callbacks->on_done(slot->place, result);
}

}  // namespace cria::trainer

#include "trainer/eval/choice_scorer.h"

#include <algorithm>

#include "base/check.h"

namespace cria::trainer {
namespace {

using model::DType;
using model::LlamaDecoder;
using model::Tensor;

}  // namespace

ChoiceScorer::ChoiceScorer(LlamaDecoder* decoder, model::Ops* ops) : decoder_(decoder), ops_(ops) {}

size_t ChoiceScorer::CountThatFit(std::span<const ChoiceTokens> questions) const {
  int64_t free = decoder_->options().max_sequences;
  size_t count = 0;
  for (const ChoiceTokens& question : questions) {
    free -= static_cast<int64_t>(question.continuations.size());
    if (free < 0) break;
    ++count;
  }
  return count;
}

std::vector<std::vector<double>> ChoiceScorer::Score(std::span<const ChoiceTokens> questions) {
  CRIA_CHECK_EQ(CountThatFit(questions), questions.size());
  std::vector<std::vector<double>> log_probs(questions.size());
  std::vector<Run> contexts, choices;
  int64_t next = 0;  // free sequence
  for (size_t q = 0; q < questions.size(); ++q) {
    const ChoiceTokens& question = questions[q];
    log_probs[q].assign(question.continuations.size(), 0);
    for (size_t c = 0; c < question.continuations.size(); ++c) {
      const std::vector<int32_t>& context = question.ContextOf(c);
      const std::vector<int32_t>& continuation = question.continuations[c];
      // The context's last token predicts the choice's first, so it runs with the choice.
      if (c < question.contexts.size()) {
        contexts.push_back({.sequence = next, .tokens = {context.begin(), context.end() - 1}});
      }
      Run run = {.sequence = next++,
                 .tokens = {context.back()},
                 .targets = continuation,
                 .log_prob = &log_probs[q][c]};
      run.tokens.insert(run.tokens.end(), continuation.begin(), continuation.end() - 1);
      choices.push_back(std::move(run));
    }
  }
  for (int64_t i = 0; i < next; ++i) decoder_->Truncate(i, 0);
  RunAll(contexts);
  next = 0;
  for (const ChoiceTokens& question : questions) {
    const auto num_choices = static_cast<int64_t>(question.continuations.size());
    for (int64_t c = static_cast<int64_t>(question.contexts.size()); c < num_choices; ++c) {
      decoder_->CopySequence(next, next + c);
    }
    next += num_choices;
  }
  RunAll(choices);
  return log_probs;
}

// In as many calls as the decoder's limits on rows take; a run may be cut anywhere.
void ChoiceScorer::RunAll(const std::vector<Run>& runs) {
  const bool scored = !runs.empty() && !runs[0].targets.empty();
  const int64_t rows_max =
      scored ? std::min(decoder_->options().max_rows, decoder_->options().max_logits)
             : decoder_->options().max_rows;
  size_t run = 0, at = 0;  // the first token that has not run
  while (run < runs.size()) {
    std::vector<LlamaDecoder::Piece> pieces;
    std::vector<double*> sums;  // one a row
    targets_.clear();
    int64_t rows = 0;
    while (run < runs.size() && rows < rows_max) {
      const Run& r = runs[run];
      const auto count = static_cast<size_t>(
          std::min<int64_t>(rows_max - rows, static_cast<int64_t>(r.tokens.size() - at)));
      if (count > 0) {
        pieces.push_back({.sequence = r.sequence,
                          .tokens = std::span(r.tokens).subspan(at, count),
                          .want = scored ? LlamaDecoder::Want::kAll : LlamaDecoder::Want::kNone});
      }
      if (scored) {
        const std::span<const int32_t> wanted = r.targets.subspan(at, count);
        targets_.insert(targets_.end(), wanted.begin(), wanted.end());
        sums.insert(sums.end(), count, r.log_prob);
      }
      rows += static_cast<int64_t>(count);
      at += count;
      if (at == r.tokens.size()) {
        ++run;
        at = 0;
      }
    }
    if (pieces.empty()) continue;
    const Tensor logits = decoder_->Forward(pieces);
    if (!scored) continue;
    CRIA_CHECK_EQ(logits.dim(0), rows);
    losses_.resize(static_cast<size_t>(rows));
    ops_->CrossEntropy({.logits = logits,
                        .targets = Tensor(targets_.data(), DType::kI32, {rows}),
                        .losses = Tensor(losses_.data(), DType::kF32, {rows})});
    for (size_t i = 0; i < losses_.size(); ++i) *sums[i] -= losses_[i];
  }
}

}  // namespace cria::trainer

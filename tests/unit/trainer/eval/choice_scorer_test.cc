#include "trainer/eval/choice_scorer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "base/rng.h"
#include "model/llama/parameter_source.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::trainer {
namespace {

using model::LlamaDecoder;
using model::TestModel;

std::vector<int32_t> RandomIds(const Rng& rng, uint64_t* draw, uint64_t count, int64_t vocab) {
  std::vector<int32_t> ids;
  for (; count > 0; --count) {
    ids.push_back(static_cast<int32_t>(rng.Below((*draw)++, static_cast<uint64_t>(vocab))));
  }
  return ids;
}

// Contexts of 1 to 20 tokens, two to four choices of 1 to 6; every third question has a context for
// each choice.
std::vector<ChoiceTokens> Questions(int64_t count, int64_t vocab) {
  const Rng rng(3, StreamOf("choice scorer test"));
  uint64_t draw = 0;
  std::vector<ChoiceTokens> questions;
  for (int64_t q = 0; q < count; ++q) {
    ChoiceTokens question;
    question.is_truncated = q % 3 == 2;
    for (uint64_t c = 2 + rng.Below(draw++, 3); c > 0; --c) {
      question.continuations.push_back(RandomIds(rng, &draw, 1 + rng.Below(draw, 6), vocab));
      if (question.contexts.empty() || question.is_truncated) {
        question.contexts.push_back(RandomIds(rng, &draw, 1 + rng.Below(draw, 20), vocab));
      }
    }
    questions.push_back(question);
  }
  return questions;
}

// From the training forward's logits of context and choice, in double.
double Reference(TestModel* model, const std::vector<int32_t>& context,
                 const std::vector<int32_t>& continuation) {
  model::OwnedBatch batch;
  batch.batch = 1;
  batch.tokens = context;
  batch.tokens.insert(batch.tokens.end(), continuation.begin(), continuation.end());
  batch.time = static_cast<int64_t>(batch.tokens.size());
  for (int32_t i = 0; i < batch.time; ++i) batch.positions.push_back(i);
  batch.targets.assign(batch.tokens.size(), -1);
  batch.doc_start.assign(batch.tokens.size(), 0);
  const std::vector<float> logits = model->Logits(batch);
  const auto vocab = static_cast<size_t>(model->config().vocab);
  double sum = 0;
  for (size_t i = 0; i < continuation.size(); ++i) {
    const float* row = logits.data() + (context.size() + i - 1) * vocab;
    double total = 0;
    for (size_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(row[v]));
    sum += row[continuation[i]] - std::log(total);
  }
  return sum;
}

TEST(ChoiceScorerTest, IsTheForwardPassHoweverQuestionsShareCalls) {
  TestModel model(model::TinyConfig(), {.max_batch = 1, .max_time = 40, .training = false});
  const std::vector<ChoiceTokens> questions = Questions(12, model.config().vocab);
  std::vector<std::vector<double>> want;
  for (const ChoiceTokens& question : questions) {
    want.emplace_back();
    for (size_t c = 0; c < question.continuations.size(); ++c) {
      want.back().push_back(Reference(&model, question.ContextOf(c), question.continuations[c]));
    }
  }
  const model::ParameterSource source(model->layout(), model->weights(), "test");
  struct Limits {
    int64_t sequences, rows, logits;
  };
  for (const Limits limits : {Limits{4, 512, 64}, Limits{9, 512, 512}, Limits{48, 512, 512},
                              Limits{9, 7, 3}, Limits{4, 1, 1}}) {
    auto decoder = LlamaDecoder::Load(model.config(),
                                      {.max_sequences = limits.sequences,
                                       .max_positions = 26,
                                       .max_rows = limits.rows,
                                       .max_logits = limits.logits},
                                      source, model.ops());
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    ChoiceScorer scorer(decoder->get(), model.ops());
    size_t done = 0;
    while (done < questions.size()) {
      const auto rest = std::span(questions).subspan(done);
      const auto group = rest.first(scorer.CountThatFit(rest));
      ASSERT_FALSE(group.empty());
      for (const std::vector<double>& got : scorer.Score(group)) {
        ASSERT_EQ(got.size(), want[done].size());
        for (size_t c = 0; c < got.size(); ++c) {
          EXPECT_NEAR(got[c], want[done][c], 2e-5 * std::abs(want[done][c]))
              << "question " << done << " choice " << c << " sequences " << limits.sequences
              << " rows " << limits.rows;
        }
        ++done;
      }
    }
  }
}

TEST(ChoiceScorerTest, CountsQuestionsBySequences) {
  TestModel model(model::TinyConfig(), {.max_batch = 1, .max_time = 8, .training = false});
  const model::ParameterSource source(model->layout(), model->weights(), "test");
  auto decoder = LlamaDecoder::Load(model.config(), {.max_sequences = 5, .max_positions = 8},
                                    source, model.ops());
  ASSERT_TRUE(decoder.ok());
  const ChoiceScorer scorer(decoder->get(), model.ops());
  const ChoiceTokens two = {.contexts = {{1}}, .continuations = {{2}, {3}}};
  EXPECT_EQ(scorer.CountThatFit(std::vector{two, two, two}), 2u);
  EXPECT_EQ(scorer.CountThatFit(std::vector{two}), 1u);
  EXPECT_EQ(scorer.CountThatFit({}), 0u);
}

}  // namespace
}  // namespace cria::trainer

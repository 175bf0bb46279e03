// The order of work, ends, texts and errors, on models whose next token is known.

#include "trainer/generate/generator.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/str.h"
#include "tests/unit/trainer/generate/byte_tokenizer.h"
#include "tests/unit/trainer/generate/markov_model.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

Prompt PromptOf(std::string_view text, uint64_t index = 0) {
  Prompt prompt = {.ids = {}, .index = index};
  for (const char c : text) prompt.ids.push_back(static_cast<uint8_t>(c));
  return prompt;
}

std::vector<Prompt> PromptsOf(const std::vector<std::string>& texts) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < texts.size(); ++i) prompts.push_back(PromptOf(texts[i], i));
  return prompts;
}

// A decoder and a generator on it.
class Rig {
 public:
  Rig(const MarkovModel& model, const model::DecoderOptions& options)
      : decoder_(model.NewDecoder(options)),
        generator_(decoder_.get(), &ByteTokenizer(), &clock_) {}

  std::vector<Generation> Run(const std::vector<Prompt>& prompts, const GenerateOptions& options,
                              const Generator::Callbacks& callbacks = {}) {
    const auto results = generator_.Run(prompts, options, callbacks);
    if (!results.ok()) ADD_FAILURE() << results.status();
    return results.ok() ? *results : std::vector<Generation>(prompts.size());
  }
  Generator* operator->() { return &generator_; }

 private:
  FakeClock clock_;
  const std::unique_ptr<model::LlamaDecoder> decoder_;
  Generator generator_;
};

const MarkovModel& Alphabet() {
  static const MarkovModel* const model = new MarkovModel(AlphabetLogit);
  return *model;
}

// Any of eight letters may follow any other, and now and then the end.
const MarkovModel& Babble() {
  static const MarkovModel* const model = new MarkovModel([](int32_t from, int32_t to) {
    if (to == kByteEos) return 3.0f;
    return to >= 'a' && to < 'i' ? 3 + 0.1f * static_cast<float>((from * 7 + to * 3) % 11) : -20.0f;
  });
  return *model;
}

TEST(GeneratorTest, ContinuesGreedilyUntilMaxTokens) {
  Rig rig(Alphabet(), {.max_positions = 64});
  for (const int64_t max_tokens : {1, 2, 5}) {
    const Generation out = rig.Run({PromptOf("ab")}, {.max_tokens = max_tokens})[0];
    EXPECT_EQ(out.text, std::string("cdefg").substr(0, static_cast<size_t>(max_tokens)));
    EXPECT_EQ(out.ids, PromptOf(out.text).ids);
    EXPECT_EQ(out.reason, FinishReason::kLength);
  }
  EXPECT_EQ(rig.Run({PromptOf("ab")}, {.max_tokens = 0})[0].text, "");
}

TEST(GeneratorTest, EndsAtAnEosTokenThatIsInTheIdsAndNotInTheText) {
  const MarkovModel model([](int32_t from, int32_t to) {
    return from == 'd' ? (to == kByteEos ? 10.0f : 0.0f) : AlphabetLogit(from, to);
  });
  Rig rig(model, {.max_positions = 64});
  Generation out = rig.Run({PromptOf("b")}, {.max_tokens = 20, .eos_ids = {kByteEos, 7}})[0];
  EXPECT_EQ(out.ids, (std::vector<int32_t>{'c', 'd', kByteEos}));
  EXPECT_EQ(out.text, "cd");
  EXPECT_EQ(out.reason, FinishReason::kEos);
  out = rig.Run({PromptOf("b")},
                {.max_tokens = 20, .eos_ids = {kByteEos}, .stop = {}, .show_special = true})[0];
  EXPECT_EQ(out.text, "cd<|end_of_text|>");
  // Without ids that end, it goes on.
  out = rig.Run({PromptOf("b")}, {.max_tokens = 5})[0];
  EXPECT_EQ(out.ids, (std::vector<int32_t>{'c', 'd', kByteEos, 'a', 'b'}));
  EXPECT_EQ(out.reason, FinishReason::kLength);
  // The end on the last token that is allowed is an end.
  EXPECT_EQ(rig.Run({PromptOf("b")}, {.max_tokens = 3, .eos_ids = {kByteEos}})[0].reason,
            FinishReason::kEos);
}

TEST(GeneratorTest, CutsBeforeAStopStringAcrossTokens) {
  Rig rig(Alphabet(), {.max_positions = 64});
  std::string streamed;
  const Generation out =
      rig.Run({PromptOf("ab")}, {.max_tokens = 20, .eos_ids = {}, .stop = {"gxx", "fgh", "z"}},
              {.on_text = [&](size_t, std::string_view text) { streamed += text; }})[0];
  EXPECT_EQ(out.text, "cde");
  EXPECT_EQ(streamed, "cde");
  EXPECT_EQ(out.ids, PromptOf("cdefgh").ids);
  EXPECT_EQ(out.reason, FinishReason::kStop);
  // What was held back comes when the text ends for another reason.
  EXPECT_EQ(rig.Run({PromptOf("ab")}, {.max_tokens = 5, .eos_ids = {}, .stop = {"fgh"}})[0].text,
            "cdefg");
  // A stop string in the prompt is no end; one that begins in it neither.
  EXPECT_EQ(
      rig.Run({PromptOf("ab")}, {.max_tokens = 3, .eos_ids = {}, .stop = {"ab", "bc"}})[0].text,
      "cde");
}

TEST(GeneratorTest, StreamsWholeCharactersThatAddUpToTheText) {
  // A cycle through the bytes of three characters, one token a byte.
  const std::string cycle = "é中\xF0\x9F\xA6\x99";
  const MarkovModel model([&](int32_t from, int32_t to) {
    const size_t at = cycle.find(static_cast<char>(from));
    const char next = from < 256 && at != cycle.npos ? cycle[(at + 1) % cycle.size()] : cycle[0];
    return to == static_cast<uint8_t>(next) ? 10.0f : 0.0f;
  });
  Rig rig(model, {.max_positions = 64});
  for (int64_t max_tokens = 1; max_tokens <= 20; ++max_tokens) {
    std::string streamed;
    int64_t num_pieces = 0;
    const Generation out = rig.Run({PromptOf("-")}, {.max_tokens = max_tokens},
                                   {.on_text = [&](size_t place, std::string_view text) {
                                     EXPECT_EQ(place, 0u);
                                     EXPECT_EQ(ValidUtf8Prefix(text), text.size());
                                     streamed += text;
                                     ++num_pieces;
                                   }})[0];
    EXPECT_EQ(streamed, out.text);
    EXPECT_LE(num_pieces, (max_tokens + 1) / 2 + 1);
    // Half a character at the end is one U+FFFD.
    std::string bytes;
    for (const int32_t id : out.ids) bytes += static_cast<char>(id);
    EXPECT_EQ(out.text, ReplaceInvalidUtf8(bytes));
  }
}

TEST(GeneratorTest, EndsWhereASequenceIsFull) {
  Rig rig(Alphabet(), {.max_positions = 8});
  for (const auto& [prompt, text] : std::vector<std::pair<std::string, std::string>>{
           {"abcde", "fgh"}, {"abcdefg", "h"}, {"abcdefgh", ""}}) {
    const Generation out = rig.Run({PromptOf(prompt)}, {.max_tokens = 50})[0];
    EXPECT_EQ(out.text, text);
    EXPECT_EQ(out.reason, FinishReason::kLength);
  }
}

TEST(GeneratorTest, RefusesPromptsBeforeAnythingRuns) {
  Rig rig(Alphabet(), {.max_positions = 8});
  const auto error = [&](const std::vector<Prompt>& prompts, const GenerateOptions& options) {
    const auto out = rig->Run(prompts, options);
    EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument) << out.status();
    return Message(out.status());
  };
  const Prompt good = PromptOf("a");
  EXPECT_EQ(error({good, PromptOf("abcdefghi")}, {}),
            "prompt 2 has 9 tokens; a sequence has room for 8");
  EXPECT_EQ(error({good, PromptOf("")}, {}), "prompt 2 has no tokens");
  EXPECT_EQ(
      error({{.ids = {1, kByteVocab}}}, {}),
      StrCat("prompt 1, token 1: id ", kByteVocab, "; the model has ids 0 to ", kByteVocab - 1));
  EXPECT_EQ(error({{.ids = {-1}}}, {}),
            StrCat("prompt 1, token 0: id -1; the model has ids 0 to ", kByteVocab - 1));
  EXPECT_EQ(error({good}, {.max_tokens = -1}), "max-tokens -1: must be 0 or more");
  EXPECT_EQ(error({good}, {.sampling = {.top_p = 2}}), "top-p 2: must be in [0, 1]");
  GenerateOptions options;
  options.stop = {"ok", ""};
  EXPECT_EQ(error({good}, options), "a stop string is empty");
  options.stop = {"\xFF"};
  EXPECT_NE(error({good}, options).find("not UTF-8"), std::string::npos);
  EXPECT_EQ(rig->stats().prompt_tokens, 0);
}

TEST(GeneratorTest, WithoutATokenizerThereAreIdsOnly) {
  FakeClock clock;
  const auto decoder = Alphabet().NewDecoder({.max_positions = 8});
  Generator generator(decoder.get(), nullptr, &clock);
  const auto out = generator.Run({PromptOf("a")}, {.max_tokens = 2});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->at(0).ids, PromptOf("bc").ids);
  EXPECT_EQ(out->at(0).text, "");
  GenerateOptions options;
  options.stop = {"x"};
  EXPECT_EQ(generator.Run({PromptOf("a")}, options).status().code(), StatusCode::kInvalidArgument);
}

TEST(GeneratorTest, ALogitThatIsNotFiniteIsAnErrorWithItsPlace) {
  MarkovModel model(AlphabetLogit);
  model.Poison('e');
  Rig rig(model, {.max_sequences = 2, .max_positions = 32});
  for (const double temperature : {0.0, 1.0}) {
    const auto out =
        rig->Run(PromptsOf({"f", "c"}), {.sampling = {.temperature = temperature, .top_k = 1}});
    EXPECT_EQ(out.status().code(), StatusCode::kDataLoss);
    // After c come d and e; what follows e would be at position 3.
    EXPECT_NE(Message(out.status()).find("prompt 2, position 3: the logit of token 0 of"),
              std::string::npos)
        << out.status();
  }
  // And the generator can be used again.
  EXPECT_EQ(rig.Run({PromptOf("f")}, {.max_tokens = 2})[0].text, "gh");
}

// Prompts of many lengths through few sequences and small chunks, with ends at different times.
TEST(GeneratorTest, ResultsDoNotDependOnTheBatch) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < 23; ++i) {
    texts.push_back(std::string("bag").substr(i % 3) + std::string(i * 5 % 17, "aceg"[i % 4]));
    if (texts.back().empty()) texts.back() = "x";
  }
  // Long beginnings in common, so that caches are shared.
  for (size_t i = 0; i < 6; ++i) texts.push_back(std::string(20 + i, 'h') + "abcdefgh"[i]);
  texts.push_back(texts.back());
  const std::vector<Prompt> prompts = PromptsOf(texts);
  GenerateOptions options = {.sampling = {.temperature = 1, .top_p = 0.95, .seed = 5},
                             .max_tokens = 12,
                             .eos_ids = {kByteEos}};
  options.stop = {"aa", "hh"};
  std::vector<Generation> alone;
  for (const Prompt& prompt : prompts) {
    Rig rig(Babble(), {.max_positions = 64});
    alone.push_back(rig.Run({prompt}, options)[0]);
  }
  std::map<FinishReason, int> reasons;
  for (const Generation& out : alone) ++reasons[out.reason];
  EXPECT_EQ(reasons.size(), 3u) << "the case has eos, stop and length";
  EXPECT_NE(alone[alone.size() - 1].ids, alone[alone.size() - 2].ids)
      << "the same prompt twice has its own random numbers";
  for (const model::DecoderOptions& decoder :
       {model::DecoderOptions{
            .max_sequences = 1, .max_positions = 64, .max_rows = 3, .max_logits = 1},
        model::DecoderOptions{
            .max_sequences = 4, .max_positions = 64, .max_rows = 7, .max_logits = 2},
        model::DecoderOptions{
            .max_sequences = 7, .max_positions = 64, .max_rows = 3, .max_logits = 9},
        model::DecoderOptions{.max_sequences = 64, .max_positions = 64, .max_rows = 512}}) {
    Rig rig(Babble(), decoder);
    std::vector<std::string> streamed(prompts.size());
    std::vector<int> done(prompts.size());
    const std::vector<Generation> batched =
        rig.Run(prompts, options,
                {.on_text = [&](size_t place, std::string_view text) { streamed[place] += text; },
                 .on_done = [&](size_t place, const Generation&) { ++done[place]; }});
    for (size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(StrCat("prompt ", i, " of ", decoder.max_sequences, " at once"));
      EXPECT_EQ(batched[i].ids, alone[i].ids);
      EXPECT_EQ(batched[i].text, alone[i].text);
      EXPECT_EQ(batched[i].reason, alone[i].reason);
      EXPECT_EQ(streamed[i], alone[i].text);
      EXPECT_EQ(done[i], 1);
    }
  }
}

TEST(GeneratorTest, TheSeedDecides) {
  const auto texts = [](uint64_t seed) {
    Rig rig(Babble(), {.max_sequences = 2, .max_positions = 64});
    std::vector<std::string> out;
    for (const Generation& g :
         rig.Run(PromptsOf({"a", "a", "b"}),
                 {.sampling = {.temperature = 1, .seed = seed}, .max_tokens = 20})) {
      out.push_back(g.text);
    }
    return out;
  };
  EXPECT_EQ(texts(1), texts(1));
  EXPECT_NE(texts(1), texts(2));
}

// A text that is cut and continued draws the same numbers as one that is not.
TEST(GeneratorTest, ACutAndContinuedTextIsTheSame) {
  const GenerateOptions options = {.sampling = {.temperature = 1, .seed = 3}, .max_tokens = 20};
  Rig rig(Babble(), {.max_positions = 64});
  const Generation whole = rig.Run({PromptOf("abc")}, options)[0];
  for (const size_t cut : {1u, 7u, 19u}) {
    Prompt prompt = PromptOf("abc");
    prompt.ids.insert(prompt.ids.end(), whole.ids.begin(),
                      whole.ids.begin() + static_cast<int64_t>(cut));
    GenerateOptions rest = options;
    rest.max_tokens = 20 - static_cast<int64_t>(cut);
    Rig other(Babble(), {.max_positions = 64});
    const Generation out = other.Run({prompt}, rest)[0];
    EXPECT_EQ(out.ids,
              std::vector<int32_t>(whole.ids.begin() + static_cast<int64_t>(cut), whole.ids.end()));
  }
}

TEST(GeneratorTest, FindsTheTurnsBeforeInItsCache) {
  Rig rig(Alphabet(), {.max_positions = 64});
  rig.Run({PromptOf("abcdefgh")}, {.max_tokens = 4});
  EXPECT_EQ(rig->stats().prompt_tokens, 8);
  EXPECT_EQ(rig->stats().cached_tokens, 0);
  // "ijkl" was generated; the last of it has not run through the model.
  EXPECT_EQ(rig.Run({PromptOf("abcdefghijklxyz")}, {.max_tokens = 1})[0].text, "a");
  EXPECT_EQ(rig->stats().cached_tokens, 11);
  EXPECT_EQ(rig->stats().prompt_tokens, 8 + 4);
  // The same prompt again: its last token runs, for its logits.
  rig.Run({PromptOf("abcdefghijklxyz")}, {.max_tokens = 1});
  EXPECT_EQ(rig->stats().cached_tokens, 11 + 14);
  EXPECT_EQ(rig->stats().prompt_tokens, 8 + 4 + 1);
}

TEST(GeneratorTest, PromptsWithACommonBeginningRunItOnce) {
  Rig rig(Babble(), {.max_sequences = 4, .max_positions = 128});
  const std::string common(100, 'c');
  rig.Run(PromptsOf({common + "a", common + "b", common + "c", common + "d"}), {.max_tokens = 2});
  EXPECT_EQ(rig->stats().prompt_tokens, 101 + 3);
  EXPECT_EQ(rig->stats().cached_tokens, 3 * 100);
}

TEST(GeneratorTest, StopsWhereTheCallerSaysAndGivesWhatThereIs) {
  std::atomic<int> stop = 0;
  Rig rig(Alphabet(), {.max_sequences = 2, .max_positions = 64});
  int num_done = 0;
  const std::vector<Generation> out =
      rig.Run(PromptsOf({"a", "k", "x"}), {.max_tokens = 30},
              {.on_text =
                   [&](size_t place, std::string_view text) {
                     if (place == 0 && text == "e") stop = 1;
                   },
               .on_done = [&](size_t, const Generation&) { ++num_done; },
               .stop = &stop});
  EXPECT_EQ(out[0].text, "bcde");
  EXPECT_EQ(out[1].text, "lmno");
  EXPECT_EQ(out[2].text, "");
  for (const Generation& g : out) EXPECT_EQ(g.reason, FinishReason::kInterrupted);
  EXPECT_EQ(num_done, 3);
}

TEST(GeneratorTest, CountsPromptsAndStepsApart) {
  Rig rig(Alphabet(), {.max_sequences = 3, .max_positions = 64});
  rig.Run(PromptsOf({"abc", "k", "xy"}), {.max_tokens = 5});
  EXPECT_EQ(rig->stats().prompt_tokens, 6);
  EXPECT_EQ(rig->stats().decode_steps, 4);
  EXPECT_EQ(rig->stats().decode_tokens, 12);
}

TEST(GenerateStatsTest, RatesAreTokensOverSeconds) {
  GenerateStats stats;
  EXPECT_EQ(stats.PromptTokensPerSecond(), 0);
  stats.prompt_tokens = 100;
  stats.prompt_seconds = 0.5;
  stats.decode_tokens = 30;
  stats.decode_seconds = 2;
  EXPECT_EQ(stats.PromptTokensPerSecond(), 200);
  EXPECT_EQ(stats.DecodeTokensPerSecond(), 15);
}

}  // namespace
}  // namespace cria::trainer

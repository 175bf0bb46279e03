// Sampling, chat templates and greedy continuations against transformers.

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "model/cpu/cpu_ops.h"
#include "tests/peers/peer_python.h"
#include "tests/support/process.h"
#include "tests/unit/trainer/tokenizer/samples.h"
#include "trainer/generate/chat_template.h"
#include "trainer/generate/generator.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

// What the peer answers to a request. Skips the test where there is none; null after a failure.
#define ASK_PEER(answer, mode, request)                                                \
  Json answer;                                                                         \
  {                                                                                    \
    const std::string file = JoinPath(FreshDir("peer"), "request.json");               \
    ASSERT_TRUE(WriteJsonFile(file, request).ok());                                    \
    const auto out = RunPeer("tests/peers/generate_peer.py", {mode, file});            \
    if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status(); \
    ASSERT_TRUE(out.ok()) << out.status();                                             \
    const auto parsed = ParseJson(*out, "peer");                                       \
    ASSERT_TRUE(parsed.ok()) << parsed.status();                                       \
    answer = *parsed;                                                                  \
  }

struct SamplingCase {
  std::vector<float> logits;
  std::vector<int32_t> history;
  SamplingOptions options;
};

std::vector<SamplingCase> SamplingCases() {
  std::vector<SamplingCase> cases;
  const Rng rng(11, StreamOf("sampling peer"));
  uint64_t draw = 0;
  const auto uniform = [&] { return rng.Uniform(draw++); };
  for (int i = 0; i < 60; ++i) {
    SamplingCase c;
    // One of Llama 3's size.
    const size_t vocab = i == 0 ? 128'256 : 1 + rng.Below(draw++, 600);
    const double spread = 0.5 + 4 * uniform();
    for (size_t k = 0; k < vocab; ++k) {
      c.logits.push_back(static_cast<float>(spread) * rng.Normal(draw++));
    }
    for (uint64_t k = rng.Below(draw++, 30); k > 0; --k) {
      c.history.push_back(static_cast<int32_t>(rng.Below(draw++, vocab)));
    }
    c.options.temperature = 0.2 + 1.5 * uniform();
    if (i % 2 == 0) c.options.top_k = 1 + static_cast<int64_t>(rng.Below(draw++, 100));
    if (i % 3 != 0) c.options.top_p = uniform();
    if (i % 5 < 2) c.options.min_p = 0.3 * uniform();
    if (i % 4 == 1 && !c.history.empty()) c.options.repetition_penalty = 0.7 + uniform();
    cases.push_back(std::move(c));
  }
  return cases;
}

TEST(GeneratePeerTest, KeepsTheTokensAndProbabilitiesOfTransformers) {
  const std::vector<SamplingCase> cases = SamplingCases();
  Json request = Json::array();
  for (const SamplingCase& c : cases) {
    request.push_back({{"logits", c.logits},
                       {"history", c.history},
                       {"temperature", c.options.temperature},
                       {"top_k", c.options.top_k},
                       {"top_p", c.options.top_p},
                       {"min_p", c.options.min_p},
                       {"repetition_penalty", c.options.repetition_penalty}});
  }
  ASK_PEER(answer, "sampling", request);
  ASSERT_EQ(answer.size(), cases.size());
  TokenSampler sampler;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(StrCat("case ", i));
    const auto got = sampler.Distribution(cases[i].logits, cases[i].history, cases[i].options);
    ASSERT_TRUE(got.ok()) << got.status();
    std::vector<int32_t> ids;
    for (const auto& c : *got) ids.push_back(c.id);
    ASSERT_EQ(ids, answer[i]["ids"].get<std::vector<int32_t>>());
    const auto expected = answer[i]["probabilities"].get<std::vector<double>>();
    for (size_t k = 0; k < ids.size(); ++k) {
      ASSERT_NEAR((*got)[k].probability, expected[k], 1e-9 + 1e-6 * expected[k]) << ids[k];
    }
  }
}

// What the two kinds of Llama 3 templates say, written anew.
constexpr char kLlama3[] =
    "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + "
    "'<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";
constexpr char kLlama31[] =
    "{{ bos_token }}{% if not date_string is defined %}{% set date_string = \"26 Jul 2024\" %}"
    "{% endif %}{% set system = '' %}{% if messages[0]['role'] == 'system' %}"
    "{% set system = messages[0]['content'] | trim %}{% set messages = messages[1:] %}{% endif %}"
    "{{ '<|start_header_id|>system<|end_header_id|>\\n\\n' }}"
    "{{ \"Cutting Knowledge Date: December 2023\\n\" }}"
    "{{ \"Today Date: \" + date_string + \"\\n\\n\" }}{{ system }}{{ '<|eot_id|>' }}"
    "{% for m in messages %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + "
    "'<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

// A small vocabulary with Llama 3's special tokens behind it.
Tokenizer ChatTokenizer() {
  TokenizerParts parts = SmallTokenizer().parts();
  int32_t id = SmallTokenizer().vocab_size();
  for (const char* content : {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}) {
    parts.added.push_back({.id = id++, .content = content});
  }
  return Tokenizer::FromParts(std::move(parts), "chat").value();
}

using Conversation = std::vector<std::pair<std::string, std::string>>;

// Random text in which special tokens are broken: transformers makes tokens of them, we text.
std::string Content(uint64_t seed, uint64_t index, uint64_t max_characters) {
  std::string text = RandomText(seed, index, max_characters);
  for (size_t at; (at = text.find("<|")) != text.npos;) text.insert(at + 1, 1, ' ');
  return text;
}

std::vector<Conversation> Conversations() {
  std::vector<Conversation> all = {
      {{"user", "Hello"}},
      {{"system", "Be brief."}, {"user", "What is a llama?"}},
      {{"user", " \n\tstripped\xC2\xA0\xE3\x80\x80\n"}, {"assistant", "Yes."}, {"user", "1+1=2?"}},
      {{"system", ""}, {"user", ""}},
      {{"user", "\xE2\x80\x8B kept \x1C"}, {"assistant", "  ok \n\n"}, {"user", "a\n\n\nb"}},
  };
  for (uint64_t i = 0; i < 40; ++i) {
    all.push_back({{"system", Content(7, 3 * i, 60)},
                   {"user", Content(7, 3 * i + 1, 200)},
                   {"assistant", Content(7, 3 * i + 2, 100)},
                   {"user", Content(8, i, 100)}});
    if (i % 2 == 0) all.back().erase(all.back().begin());
  }
  return all;
}

void CompareChats(const char* jinja, const Json& variables, const std::string& date) {
  const Tokenizer tokenizer = ChatTokenizer();
  const std::string path = JoinPath(FreshDir("chat_tokenizer"), "tokenizer.json");
  ASSERT_TRUE(tokenizer.Save(path).ok());
  const auto chat = ChatTemplate::Create(jinja, tokenizer, tokenizer.bos_id(), "model");
  ASSERT_TRUE(chat.ok()) << chat.status();
  Json conversations = Json::array();
  for (const Conversation& conversation : Conversations()) {
    Json messages = Json::array();
    for (const auto& [role, content] : conversation) {
      messages.push_back({{"role", role}, {"content", content}});
    }
    conversations.push_back(messages);
  }
  const Json request = {{"tokenizer", path},
                        {"template", jinja},
                        {"variables", variables},
                        {"conversations", conversations}};
  ASK_PEER(answer, "chat", request);
  const std::vector<Conversation> all = Conversations();
  ASSERT_EQ(answer.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(StrCat("conversation ", i));
    Conversation conversation = all[i];
    ChatStart start = {.system = {}, .date = date.empty() ? chat->DefaultDate("unused") : date};
    if (conversation[0].first == "system") {
      start.system = conversation[0].second;
      conversation.erase(conversation.begin());
    }
    // The plain template writes an empty system message too, where there is one.
    if (i == 3 && std::string(jinja) == kLlama3) continue;
    std::vector<int32_t> ids = chat->Start(start);
    for (const auto& [role, content] : conversation) chat->AddMessage(role, content, &ids);
    chat->StartReply(&ids);
    ASSERT_EQ(ids, answer[i].get<std::vector<int32_t>>());
  }
}

TEST(GeneratePeerTest, Llama3sChatTemplateGivesTheIdsOfTransformers) {
  CompareChats(kLlama3, Json::object(), "");
}

TEST(GeneratePeerTest, Llama31sChatTemplateGivesTheIdsOfTransformers) {
  CompareChats(kLlama31, Json::object(), "");
}

TEST(GeneratePeerTest, Llama31sChatTemplateTakesADate) {
  CompareChats(kLlama31, {{"date_string", "03 Jan 2025"}}, "03 Jan 2025");
}

TEST(GeneratePeerTest, GreedyWithAPenaltyAndAnEndIsThatOfTransformers) {
  for (const std::string name : {"gqa_llama31", "tied_headdim", "mha_linear"}) {
    SCOPED_TRACE(name);
    const std::string dir = JoinPath("tests/golden", name);
    const auto files = OpenModel(dir);
    ASSERT_TRUE(files.ok()) << files.status();
    const Rng rng(4, StreamOf("greedy peer"));
    std::vector<Prompt> prompts;
    Json ids = Json::array();
    for (uint64_t i = 0; i < 12; ++i) {
      Prompt prompt = {.ids = {}, .index = i};
      for (uint64_t k = 0; k < 1 + i; ++k) {
        prompt.ids.push_back(static_cast<int32_t>(
            rng.Below(100 * i + k, static_cast<uint64_t>(files->config.vocab))));
      }
      ids.push_back(prompt.ids);
      prompts.push_back(std::move(prompt));
    }
    const Json request = {{"model", dir}, {"prompts", ids}, {"max_tokens", 60}, {"penalty", 1.2}};
    ASK_PEER(answer, "greedy", request);
    const auto ops = model::cpu::NewCpuOps();
    const auto decoder = model::LlamaDecoder::Load(
        files->config, {.max_sequences = 4, .max_positions = 128}, *files->weights, ops.get());
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    FakeClock clock;
    Generator generator(decoder->get(), nullptr, &clock);
    const auto out = generator.Run(
        prompts,
        {.sampling = {.repetition_penalty = 1.2}, .max_tokens = 60, .eos_ids = files->eos_ids});
    ASSERT_TRUE(out.ok()) << out.status();
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ((*out)[i].ids, answer[i].get<std::vector<int32_t>>()) << "prompt " << i;
    }
  }
}

}  // namespace
}  // namespace cria::trainer

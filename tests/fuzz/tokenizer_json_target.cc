// Hugging Face's tokenizer.json (trainer/tokenizer/tokenizer.h), then text through what it made.

#include <algorithm>

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/tokenizer/bpe_trainer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::fuzz {
namespace {

using trainer::AddedToken;
using trainer::BpeTrainer;
using trainer::BpeTrainerOptions;
using trainer::Tokenizer;
using trainer::TokenizerParts;

constexpr std::string_view kName = "fuzzed/tokenizer.json";
constexpr std::string_view kText =
    "In the beginning, 1234 words' worth of text.\r\n\n  \xc3\xa9\xe4\xb8\xad\xff <|end_of_text|> "
    "the";

// True when every text must come back as it was: nothing normalizes, drops or strips any of it.
bool KeepsText(const TokenizerParts& parts) {
  const bool strips = std::any_of(parts.added.begin(), parts.added.end(),
                                  [](const AddedToken& t) { return t.lstrip || t.rstrip; });
  return parts.normalizer.empty() && parts.pre_tokenizer.empty() && !parts.MissingByte() && !strips;
}

Status Read(std::string_view input) {
  const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(input, std::string(kName));
  if (!tokenizer.ok()) return NamesPlace(tokenizer.status(), kName);
  for (const bool special : {false, true}) {
    std::vector<int32_t> ids;
    tokenizer->Encode(kText, {.parse_special = special}, &ids);
    for (const int32_t id : ids) CRIA_CHECK(id >= 0 && id < tokenizer->vocab_size(), id);
    if (!special && KeepsText(tokenizer->parts())) CRIA_CHECK(tokenizer->Decode(ids) == kText);
  }
  std::vector<int32_t> with_template;
  tokenizer->Encode("a", {.add_template = true}, &with_template);
  for (const int32_t id : {-1, 0, 255, tokenizer->vocab_size() - 1, tokenizer->vocab_size()}) {
    Touch(tokenizer->TokenBytes(id));
  }
  // What it would write, it reads again.
  const std::string json = tokenizer->ToJson();
  const StatusOr<Tokenizer> again = Tokenizer::FromJson(json, "written");
  CRIA_CHECK(again.ok(), Message(again.status()));
  CRIA_CHECK(again->ToJson() == json);
  return OkStatus();
}

std::string Trained(int64_t vocab) {
  BpeTrainerOptions options;
  options.vocab_size = vocab;
  StatusOr<BpeTrainer> trainer = BpeTrainer::Create(options);
  CRIA_CHECK(trainer.ok());
  trainer->AddText("the llama and the cria and the shepherd, then the other llama; thin, thick");
  const StatusOr<Tokenizer> tokenizer = trainer->Train();
  CRIA_CHECK(tokenizer.ok(), Message(tokenizer.status()));
  return tokenizer->ToJson();
}

std::vector<std::string> Seeds() { return {Trained(262), Trained(270)}; }

std::vector<std::string> Regressions() {
  return {std::string(100'000, '['), "{\"model\":" + std::string(100'000, '{'), "{}", "null",
          R"({"model":{"type":"BPE","vocab":{},"merges":[]}})"};
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {.name = "tokenizer_json",
                                .read = Read,
                                .seeds = Seeds,
                                .regressions = Regressions,
                                // Tables of classes, PCRE2's own.
                                .memory_base = size_t{4} << 20};
  return target;
}

}  // namespace cria::fuzz

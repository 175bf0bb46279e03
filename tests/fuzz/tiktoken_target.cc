// tiktoken's vocabulary files (trainer/tokenizer/tiktoken.h).

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/seed_model.h"
#include "trainer/tokenizer/tiktoken.h"

namespace cria::fuzz {
namespace {

using trainer::Tokenizer;

constexpr std::string_view kName = "fuzzed/tokenizer.model";

Status Read(std::string_view input) {
  Status status = OkStatus();
  for (const auto specials :
       {trainer::TiktokenSpecials::kNone, trainer::TiktokenSpecials::kLlama31}) {
    const StatusOr<Tokenizer> tokenizer =
        trainer::TiktokenFromText(input, {.specials = specials}, std::string(kName));
    if (!tokenizer.ok()) {
      status = NamesPlace(tokenizer.status(), kName);
      continue;
    }
    UseTokenizer(*tokenizer);
    // What it read, it writes again.
    const StatusOr<std::string> text = TiktokenText(*tokenizer);
    CRIA_CHECK(text.ok(), Message(text.status()));
  }
  return status;
}

std::vector<std::string> Seeds() { return {TiktokenSeed()}; }

}  // namespace

const Target& TheTarget() {
  static const Target target = {.name = "tiktoken",
                                .read = Read,
                                .seeds = Seeds,
                                // Llama 3's 256 special tokens.
                                .memory_base = size_t{4} << 20};
  return target;
}

}  // namespace cria::fuzz

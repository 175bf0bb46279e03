// Ids recorded from the package tokenizers, in the styles of known models (make_pipelines.py), and
// hostile variants of those files.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {
namespace {

const Json& Recorded() {
  static const Json recorded = [] {
    StatusOr<Json> json = ReadJsonFile("tests/unit/trainer/tokenizer/pipelines.json");
    EXPECT_TRUE(json.ok()) << json.status();
    return json.ok() ? *json : Json();
  }();
  return recorded;
}

std::string TokenizerJson(const Json& style, const Json& model) {
  Json json;
  for (const char* key :
       {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    json[key] = style[key];
  }
  json["model"] = model;
  return *DumpJson(json);
}

TEST(PipelinesTest, IdsEqualTheRecordedOnes) {
  ASSERT_GE(Recorded()["styles"].size(), 15u);
  for (const Json& style : Recorded()["styles"]) {
    const std::string name = style["name"];
    const StatusOr<Tokenizer> tokenizer =
        Tokenizer::FromJson(TokenizerJson(style, Recorded()["model"]), name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const StatusOr<Tokenizer> saved = Tokenizer::FromJson(tokenizer->ToJson(), name);
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(saved->parts(), tokenizer->parts()) << name;
    for (size_t i = 0; i < style["texts"].size(); ++i) {
      const std::string text = style["texts"][i];
      for (const Tokenizer& t : {*tokenizer, *saved}) {
        std::vector<int32_t> ids;
        t.Encode(text, {.parse_special = true, .add_template = true}, &ids);
        EXPECT_EQ(Json(ids), style["ids"][i]) << name << ": " << style["texts"][i];
      }
    }
  }
}

// With a small model, so that most damage falls on what is around it. What loads must encode any
// bytes and be written and read again.
TEST(PipelinesTest, NoDamagedFileCrashes) {
  Json model = {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}};
  const Rng rng(12, StreamOf("pipelines"));
  uint64_t draw = 0;
  int num_loaded = 0, num_refused = 0;
  for (const Json& style : Recorded()["styles"]) {
    const std::string good = TokenizerJson(style, model);
    for (int round = 0; round < 250; ++round) {
      std::string text = good;
      if (round % 5 == 0) {
        text.resize(rng.Below(draw++, text.size()));
      } else {
        const size_t at = rng.Below(draw++, text.size());
        text[at] = static_cast<char>(text[at] ^ (1 << rng.Below(draw++, 7)));
      }
      const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(text, "damaged.json");
      if (!tokenizer.ok()) {
        ++num_refused;
        ASSERT_EQ(Message(tokenizer.status()).find("damaged.json"), 0u) << tokenizer.status();
        continue;
      }
      ++num_loaded;
      std::vector<int32_t> ids;
      tokenizer->Encode("ab  \xFF e\u0301 1²3 <|im_start|> word, \n\xE4\xB8",
                        {.parse_special = true}, &ids);
      (void)tokenizer->Decode(ids);
      ASSERT_TRUE(Tokenizer::FromJson(tokenizer->ToJson(), "again").ok()) << text;
    }
  }
  EXPECT_GT(num_loaded, 30);
  EXPECT_GT(num_refused, 100);
}

}  // namespace
}  // namespace cria::trainer

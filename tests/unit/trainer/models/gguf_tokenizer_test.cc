// The tokenizer's keys: what they keep, what they can't, what is damaged.

#include "trainer/models/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/unit/model/io/gguf_bytes.h"
#include "tests/unit/trainer/models/gguf_random_model.h"
#include "trainer/models/gguf_model.h"
#include "trainer/tokenizer/split_pattern.h"

namespace cria::trainer {
namespace {

using model::GgufTempPath;

ModelFiles WithTokenizer(const TokenizerParts& parts) {
  ModelFiles files = SmallModel(model::StDtype::kF32);
  StatusOr<Tokenizer> tokenizer = Tokenizer::FromParts(parts, "parts");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  files.tokenizer = *std::move(tokenizer);
  return files;
}

// The keys alone in a file.
StatusOr<model::GgufFile> Written(const ModelFiles& files, bool keep_tokenizer = true) {
  const std::string path = GgufTempPath("keys.gguf");
  CRIA_ASSIGN_OR_RETURN(const auto writer, model::GgufWriter::Create(path));
  CRIA_RETURN_IF_ERROR(AddTokenizerKeys(files, keep_tokenizer, writer.get()));
  CRIA_RETURN_IF_ERROR(writer->BeginData());
  CRIA_RETURN_IF_ERROR(writer->Commit());
  return model::GgufFile::Open(path);
}

StatusOr<ModelFiles> Read(const model::GgufFile& file) {
  ModelFiles files;
  files.config = SmallConfig();
  CRIA_RETURN_IF_ERROR(ReadGgufTokenizer(file, &files));
  return files;
}

TEST(GgufTokenizerTest, WritesLlamaCppsKeys) {
  const auto file = Written(SmallModel(model::StDtype::kF32));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->String("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(*file->String("tokenizer.ggml.pre"), "llama-bpe");
  const auto tokens = file->Strings("tokenizer.ggml.tokens");
  const auto types = file->Integers("tokenizer.ggml.token_type");
  ASSERT_EQ(tokens->size(), 320u);  // the model's vocabulary, not the tokenizer's
  ASSERT_EQ(types->size(), 320u);
  EXPECT_EQ((*tokens)[256], "\xc4\xa0t");  // " t" in the byte alphabet
  EXPECT_EQ((*types)[256], 1);
  EXPECT_EQ((*tokens)[270], "[PAD270]");
  EXPECT_EQ((*types)[270], 5);
  EXPECT_EQ((*tokens)[300], "<|begin_of_text|>");
  EXPECT_EQ((*types)[300], 3);
  EXPECT_EQ((*tokens)[303], "<tool \xc3\xa9>");  // as it stands, not in the alphabet
  EXPECT_EQ((*types)[303], 4);
  EXPECT_EQ((*file->Strings("tokenizer.ggml.merges"))[2], "\xc4\xa0t he");
  EXPECT_EQ(*file->Integer("tokenizer.ggml.bos_token_id"), 300);
  EXPECT_EQ(*file->Integer("tokenizer.ggml.eos_token_id"), 301);
  EXPECT_EQ(*file->Integer("tokenizer.ggml.eot_token_id"), 302);
  EXPECT_TRUE(*file->Bool("tokenizer.ggml.add_bos_token"));
  EXPECT_FALSE(*file->Bool("tokenizer.ggml.add_eos_token"));
  EXPECT_FALSE(file->Has("cria.eos_token_ids"));
  EXPECT_TRUE(file->Has("tokenizer.chat_template"));
}

TEST(GgufTokenizerTest, KeepsAnyListOfIdsThatEndAGeneration) {
  for (const std::vector<int32_t>& eos : std::vector<std::vector<int32_t>>{
           {}, {301}, {302}, {302, 301}, {301, 302}, {5, 302, 301}, {1, 2, 3, 4, 5}, {7, 7}}) {
    ModelFiles files = SmallModel(model::StDtype::kF32);
    files.eos_ids = eos;
    const auto file = Written(files);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto read = Read(*file);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->eos_ids, eos);
  }
}

TEST(GgufTokenizerTest, KeepsAnAddedTokenThatMergesMakeToo) {
  TokenizerParts parts = SmallTokenizerParts();
  // " the": in the vocabulary, made by a merge, and matched before all else.
  parts.added.push_back({258, " the", false, true});
  const ModelFiles files = WithTokenizer(parts);
  const auto file = Written(files);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto read = Read(*file);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(read->tokenizer.has_value()) << read->tokenizer_status;
  EXPECT_EQ(read->tokenizer->parts(), files.tokenizer->parts());
}

TEST(GgufTokenizerTest, NamesWhatTheFormatCanNotKeep) {
  TokenizerParts split = SmallTokenizerParts();
  split.split_expressions = {R"(\w+)"};
  TokenizerParts none = SmallTokenizerParts();
  none.split_expressions.clear();
  TokenizerParts merges = SmallTokenizerParts();
  merges.split_expressions = {kGpt2Pattern};  // with ignore_merges: llama.cpp has no such pair
  TokenizerParts two = SmallTokenizerParts();
  two.template_prefix = {300, 302};
  TokenizerParts alike = SmallTokenizerParts();
  alike.added.push_back({310, "\xc4\xa0", true, false});  // reads as the space does
  TokenizerParts large = SmallTokenizerParts();
  large.added.push_back({320, "<|more|>", true, false});
  TokenizerParts normalizes = SmallTokenizerParts();
  normalizes.normalizer = {{.kind = NormalizerStep::Kind::kNfc}};
  TokenizerParts strips = SmallTokenizerParts();
  strips.added[3].lstrip = true;
  TokenizerParts steps = SmallTokenizerParts();
  steps.split_expressions.clear();
  steps.pre_tokenizer = {{.kind = PreTokenizerStep::Kind::kWhitespaceSplit},
                         {.kind = PreTokenizerStep::Kind::kByteLevel}};
  for (const auto& [parts, message] :
       {std::pair{normalizes, "normalizes"}, std::pair{strips, "lstrip"},
        std::pair{steps, "more than expressions"}, std::pair{split, "\"\\w+\""},
        std::pair{none, "(none,"}, std::pair{merges, "ignore_merges true"},
        std::pair{two, "2 tokens before"}, std::pair{alike, "two tokens read"},
        std::pair{large, "has 321 ids"}}) {
    const ModelFiles files = WithTokenizer(parts);
    const auto file = Written(files);
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument) << message;
    EXPECT_NE(Message(file.status()).find(message), std::string::npos) << file.status();
    EXPECT_NE(Message(file.status()).find("--no-tokenizer"), std::string::npos);
    const auto without = Written(files, /*keep_tokenizer=*/false);
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(*without->String("tokenizer.ggml.model"), "no_vocab");
    EXPECT_EQ(*without->Integer("tokenizer.ggml.bos_token_id"), 300);
  }
  // One that the source had and we could not run is not dropped in silence.
  ModelFiles unread = SmallModel(model::StDtype::kF32);
  unread.tokenizer.reset();
  unread.tokenizer_status = UnimplementedError("SentencePiece");
  EXPECT_EQ(Written(unread).status().code(), StatusCode::kInvalidArgument);
}

// SmolLM's steps as Hugging Face's file has them: single digits, then GPT-2's expression.
TEST(GgufTokenizerTest, NamesASplitThatStandsInSteps) {
  TokenizerParts parts = SmallTokenizerParts();
  parts.ignore_merges = false;
  parts.split_expressions.clear();
  parts.pre_tokenizer = {
      {.kind = PreTokenizerStep::Kind::kDigits, .individual_digits = true},
      {.kind = PreTokenizerStep::Kind::kByteLevel, .use_regex = true},
  };
  const ModelFiles files = WithTokenizer(parts);
  const auto file = Written(files);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->String("tokenizer.ggml.pre"), "smollm");
  const auto read = Read(*file);
  ASSERT_TRUE(read.ok()) << read.status();
  for (const std::string text : {"in 1234 x12", "  the\n\nthing 7's"}) {
    std::vector<int32_t> ids, want;
    read->tokenizer->Encode(text, &ids);
    files.tokenizer->Encode(text, &want);
    EXPECT_EQ(ids, want) << text;
  }
}

TEST(GgufTokenizerTest, KeepsEntriesThatNoBytesStandFor) {
  TokenizerParts parts = SmallTokenizerParts();
  parts.tokens.resize(271);
  parts.tokens[270] = "a b";  // a space is not of the alphabet
  parts.literal_ids = {270};
  const ModelFiles files = WithTokenizer(parts);
  const auto file = Written(files);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto read = Read(*file);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tokenizer->parts(), files.tokenizer->parts());
}

// The keys of a small tokenizer, for one to be bent.
struct Keys {
  std::string model = "gpt2";
  std::string pre = "llama-bpe";
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  bool has_pre = true;
  bool has_types = true;
  uint32_t bos = 300;
  uint32_t eos = 301;

  Keys() {
    const auto file = Written(SmallModel(model::StDtype::kF32));
    const auto texts = file->Strings("tokenizer.ggml.tokens");
    tokens.assign(texts->begin(), texts->end());
    const auto numbers = file->Integers("tokenizer.ggml.token_type");
    for (const int64_t type : *numbers) types.push_back(static_cast<int32_t>(type));
    const auto pairs = file->Strings("tokenizer.ggml.merges");
    merges.assign(pairs->begin(), pairs->end());
  }

  StatusOr<ModelFiles> Opened(bool add_bos = true, bool add_eos = false) const {
    const std::string path = GgufTempPath("bent.gguf");
    CRIA_ASSIGN_OR_RETURN(const auto writer, model::GgufWriter::Create(path));
    writer->AddString("tokenizer.ggml.model", model);
    if (has_pre) writer->AddString("tokenizer.ggml.pre", pre);
    writer->AddStrings("tokenizer.ggml.tokens", tokens);
    if (has_types) writer->AddI32s("tokenizer.ggml.token_type", types);
    writer->AddStrings("tokenizer.ggml.merges", merges);
    writer->AddU32("tokenizer.ggml.bos_token_id", bos);
    writer->AddU32("tokenizer.ggml.eos_token_id", eos);
    if (!add_bos) writer->AddBool("tokenizer.ggml.add_bos_token", false);
    if (add_eos) writer->AddBool("tokenizer.ggml.add_eos_token", true);
    CRIA_RETURN_IF_ERROR(writer->BeginData());
    CRIA_RETURN_IF_ERROR(writer->Commit());
    CRIA_ASSIGN_OR_RETURN(const model::GgufFile file, model::GgufFile::Open(path));
    return Read(file);
  }
};

TEST(GgufTokenizerTest, TakesLlamaCppsDefaults) {
  const Keys keys;
  const auto by_default = keys.Opened();
  ASSERT_TRUE(by_default.ok()) << by_default.status();
  EXPECT_EQ(by_default->tokenizer->parts().template_prefix, std::vector<int32_t>{300});
  EXPECT_TRUE(by_default->tokenizer->parts().template_suffix.empty());
  EXPECT_TRUE(keys.Opened(false)->tokenizer->parts().template_prefix.empty());
  EXPECT_EQ(keys.Opened(true, true)->tokenizer->parts().template_suffix, std::vector<int32_t>{301});
  Keys gpt2;
  gpt2.pre = "gpt-2";
  EXPECT_TRUE(gpt2.Opened()->tokenizer->parts().template_prefix.empty());
  EXPECT_FALSE(gpt2.Opened()->tokenizer->parts().ignore_merges);
}

TEST(GgufTokenizerTest, OpensAModelWhoseTokenizerItCanNotRun) {
  Keys sentence_piece, unknown, no_pre;
  sentence_piece.model = "llama";
  unknown.pre = "tekken";
  no_pre.has_pre = false;
  for (const auto& [keys, message] :
       {std::pair{sentence_piece, "\"llama\""}, std::pair{unknown, "\"tekken\""},
        std::pair{no_pre, "no key tokenizer.ggml.pre"}}) {
    const auto read = keys.Opened();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_FALSE(read->tokenizer.has_value());
    EXPECT_EQ(read->tokenizer_status.code(), StatusCode::kUnimplemented);
    EXPECT_NE(Message(read->tokenizer_status).find(message), std::string::npos)
        << read->tokenizer_status;
    EXPECT_EQ(read->bos_id, 300);
  }
}

TEST(GgufTokenizerTest, NamesWhatIsDamaged) {
  std::vector<std::pair<Keys, const char*>> cases(8);
  cases[0].first.merges[1] = "nospace";
  cases[0].second = "merges[1]";
  cases[1].first.merges[1] = "a zz";
  cases[1].second = "merges[1]";
  cases[2].first.types.pop_back();
  cases[2].second = "319 types for 320 tokens";
  cases[3].first.types[4] = 6;
  cases[3].second = "token_type[4] is 6";
  cases[4].first.tokens[4] = "";
  cases[4].second = "tokens[4]";
  cases[5].first.tokens[5] = cases[5].first.tokens[6];
  cases[5].second = "two ids";
  cases[6].first.tokens.push_back("more");
  cases[6].first.types.push_back(1);
  cases[6].second = "has 321 tokens";
  cases[7].first.bos = 20;
  cases[7].second = "token 20 is no control token";
  for (const auto& [keys, message] : cases) {
    const auto read = keys.Opened();
    ASSERT_FALSE(read.ok()) << message;
    EXPECT_NE(Message(read.status()).find(message), std::string::npos) << read.status();
  }
}

}  // namespace
}  // namespace cria::trainer

// Our ids and decoded texts against those of Hugging Face's tokenizers and of tiktoken, computed
// now: tokenizers in the style of well-known models, made and run by tokenizer_peer.py.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tests/peers/peer_python.h"
#include "trainer/data/bible.h"
#include "trainer/tokenizer/bpe_trainer.h"
#include "trainer/tokenizer/load_tokenizer.h"
#include "trainer/tokenizer/streaming_decoder.h"
#include "trainer/tokenizer/tiktoken.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

constexpr char kScript[] = "tests/peers/tokenizer_peer.py";

std::string NewFolder(const std::string& name) {
  const char* const base = std::getenv("TEST_TMPDIR");
  std::string path = JoinPath(base != nullptr ? base : "/tmp", name);
  (void)RemoveAll(path);
  (void)MakeDirs(path);
  return path;
}

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  while (!line.empty()) {
    const size_t end = std::min(line.find_first_of(" \n"), line.size());
    if (end > 0) words.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text,
                            const EncodeOptions& options) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, options, &ids);
  return ids;
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                     bool skip_special) {
  StreamingDecoder decoder(&tokenizer, skip_special, /*replace_invalid=*/true);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

Json ReadOrDie(const std::string& path) {
  StatusOr<Json> json = ReadJsonFile(path);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

void CheckEncoding(const Tokenizer& tokenizer, const Json& texts, const Json& want,
                   const EncodeOptions& options, const std::string& what) {
  ASSERT_GT(want.size(), 0u) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string text = texts[i].get<std::string>();
    ASSERT_EQ(Json(Encode(tokenizer, text, options)), want[i])
        << what << ", text " << i << ": " << Json(text).dump().substr(0, 500);
  }
}

void CheckStyle(const std::string& folder, const std::string& style, const Json& texts) {
  const std::string path = JoinPath(folder, style);
  const StatusOr<Tokenizer> tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const StatusOr<Tokenizer> saved = Tokenizer::FromJson(tokenizer->ToJson(), "as saved");
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->parts(), tokenizer->parts()) << style;

  const Json expected = ReadOrDie(JoinPath(path, "expected.json"));
  const EncodeOptions special{.parse_special = true};
  CheckEncoding(*tokenizer, texts, expected["ids"], special, style);
  CheckEncoding(*tokenizer, texts, expected["plain"], {}, style + " without specials");
  CheckEncoding(*tokenizer, texts, expected["with_template"],
                {.parse_special = true, .add_template = true}, style + " with template");
  const Json& cut = expected["cut"];
  for (size_t i = 0; i < cut.size(); ++i) {
    const auto ids = cut[i].get<std::vector<int32_t>>();
    const std::string want = expected["decoded"][i].get<std::string>();
    ASSERT_EQ(ReplaceInvalidUtf8(tokenizer->Decode(ids)), want) << style << ", text " << i;
    ASSERT_EQ(Streamed(*tokenizer, ids, false), want) << style << ", text " << i;
    const std::string want_skipping = expected["decoded_skipping"][i].get<std::string>();
    ASSERT_EQ(ReplaceInvalidUtf8(tokenizer->Decode(ids, /*skip_special=*/true)), want_skipping)
        << style << ", text " << i;
    ASSERT_EQ(Streamed(*tokenizer, ids, true), want_skipping) << style << ", text " << i;
  }
}

void CheckStyles(const char* mode, size_t num_styles_min) {
  const std::string folder = NewFolder(mode);
  const StatusOr<std::string> styles = RunPeer(kScript, {mode, folder});
  if (styles.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << styles.status();
  ASSERT_TRUE(styles.ok()) << styles.status();
  const Json texts = ReadOrDie(JoinPath(folder, "texts.json"));
  const std::vector<std::string> names = Words(*styles);
  ASSERT_GE(names.size(), num_styles_min);
  for (const std::string& style : names) CheckStyle(folder, style, texts);
}

TEST(TokenizerPeerTest, StylesOfKnownModelsGiveTheSameIdsAndTextsAsTokenizers) {
  CheckStyles("json", 40);
}

TEST(TokenizerPeerTest, EveryCharacterGivesTheSameIdsAsTokenizers) { CheckStyles("characters", 8); }

// A vocabulary learned here on the King James text, written as a tiktoken file, gives the ids of a
// tiktoken.Encoding of the same ranks: read from that file, and once more from the tokenizer.json
// that it is converted to.
TEST(TokenizerPeerTest, TiktokenFilesGiveTheSameIdsAsTiktoken) {
  const StatusOr<std::vector<std::string>> chapters = ReadBible({});
  if (!chapters.ok()) GTEST_SKIP() << chapters.status();
  const std::string folder = NewFolder("tiktoken");
  StatusOr<BpeTrainer> trainer =
      BpeTrainer::Create({.vocab_size = 4000, .special_tokens = {"<|end_of_text|>"}});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  for (const std::string& chapter : *chapters) trainer->AddText(chapter);
  const StatusOr<Tokenizer> learned = trainer->Train();
  ASSERT_TRUE(learned.ok()) << learned.status();
  ASSERT_TRUE(learned->Save(JoinPath(folder, "learned.json")).ok());
  Json texts = Json::array();
  for (size_t i = 0; i < chapters->size(); i += 7) texts.push_back((*chapters)[i]);
  for (const char* text :
       {"", " Việt", "this\n\n\nis  12345 'LL <|eot_id|>it<|begin_of_text|>", "😀 naïve 中文字符",
        "for (int i = 0; i < n; ++i) {\n\tsum += x[i];\r\n}", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    texts.push_back(text);
  }
  ASSERT_TRUE(WriteJsonFile(JoinPath(folder, "texts.json"), texts).ok());
  const StatusOr<std::string> out = RunPeer(kScript, {"tiktoken", folder});
  if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
  ASSERT_TRUE(out.ok()) << out.status();

  const StatusOr<Tokenizer> tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->vocab_size(), 3999 + 256);
  const Json want = ReadOrDie(JoinPath(folder, "tiktoken_ids.json"));
  CheckEncoding(*tokenizer, texts, want, {.parse_special = true}, "tiktoken");
  const StatusOr<Tokenizer> json = Tokenizer::FromJson(tokenizer->ToJson(), "converted");
  ASSERT_TRUE(json.ok()) << json.status();
  CheckEncoding(*json, texts, want, {.parse_special = true}, "converted");
  const StatusOr<std::string> file = TiktokenText(*json);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file, *ReadFile(JoinPath(folder, "tokenizer.model")));
}

// llama-models, tests of its tokenizer: the only ids that Meta publishes.
TEST(TokenizerPeerTest, MetasFileGivesThePublishedIds) {
  const char* const path = std::getenv("CRIA_LLAMA3_TOKENIZER");
  if (path == nullptr || *path == '\0') {
    GTEST_SKIP() << "CRIA_LLAMA3_TOKENIZER names no tokenizer.model of Llama 3";
  }
  const StatusOr<Tokenizer> tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->vocab_size(), 128256);
  EXPECT_EQ(tokenizer->parts().merges.size(), 280147u);  // as in Hugging Face's file
  EXPECT_EQ(Encode(*tokenizer, "This is a test sentence.", {.add_template = true}),
            (std::vector<int32_t>{128000, 2028, 374, 264, 1296, 11914, 13}));
  EXPECT_EQ(tokenizer->eos_id(), 128001);
  EXPECT_EQ(Encode(*tokenizer, " Việt", {}), (std::vector<int32_t>{101798}));
}

}  // namespace
}  // namespace cria::trainer

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"
#include "tests/unit/trainer/tokenizer/samples.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/split_pattern.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {
namespace {

constexpr char kName[] = "folder/tokenizer.json";

// A document as Hugging Face writes it, of which a test replaces one part.
struct Document {
  std::string added = R"([{"id": 259, "content": "<|end_of_text|>", "special": true}])";
  std::string normalizer = "null";
  std::string pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type": "ByteLevel"})";
  std::string extra_vocab = R"(, "th": 256, "the": 257, "he": 258)";
  std::string merges = R"(["t h", "th e"])";
  std::string model_extra;

  std::string Text() const {
    std::string vocab;
    for (int rank = 0; rank < 256; ++rank) {
      const char byte = static_cast<char>(ByteOfRank()[rank]);
      const std::string token = ToAlphabet({&byte, 1});
      const std::string escaped = token == "\"" || token == "\\" ? "\\" + token : token;
      vocab += StrCat(rank == 0 ? "" : ",", "\"", escaped, "\":", rank);
    }
    return StrCat(R"({"version": "1.0", "added_tokens": )", added, R"(, "normalizer": )",
                  normalizer, R"(, "pre_tokenizer": )", pre_tokenizer, R"(, "post_processor": )",
                  post_processor, R"(, "decoder": )", decoder,
                  R"(, "model": {"type": "BPE", "vocab": {)", vocab, extra_vocab,
                  R"(}, "merges": )", merges, model_extra, "}}");
  }
};

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, &ids);
  return ids;
}

TEST(TokenizerJsonTest, ReadsMergesAsStringsAndAsPairs) {
  for (const char* merges : {R"(["t h", "th e"])", R"([["t", "h"], ["th", "e"]])"}) {
    Document document;
    document.merges = merges;
    const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(document.Text(), kName);
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    EXPECT_EQ(Encode(*tokenizer, "the"), (std::vector<int32_t>{257}));
    EXPECT_EQ(tokenizer->vocab_size(), 260);
    EXPECT_EQ(tokenizer->eos_id(), 259);
    EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
    EXPECT_EQ(tokenizer->parts().split_expressions, (std::vector<std::string>{kGpt2Pattern}));
  }
}

// "he" has no merge: only ignore_merges finds it.
TEST(TokenizerJsonTest, HonoursIgnoreMerges) {
  Document document;
  EXPECT_EQ(Encode(*Tokenizer::FromJson(document.Text(), kName), "he").size(), 2u);
  document.model_extra = R"(, "ignore_merges": true)";
  EXPECT_EQ(Encode(*Tokenizer::FromJson(document.Text(), kName), "he"),
            (std::vector<int32_t>{258}));
}

TEST(TokenizerJsonTest, ReadsATemplateWithTokensBeforeAndAfter) {
  Document document;
  document.post_processor =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end_of_text|>",
      "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken":
      {"id": "<|end_of_text|>", "type_id": 0}}], "pair": [], "special_tokens": {}})";
  const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(document.Text(), kName);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  std::vector<int32_t> ids;
  tokenizer->Encode("the", {.add_template = true}, &ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{259, 257, 259}));
  const StatusOr<Tokenizer> again = Tokenizer::FromJson(tokenizer->ToJson(), kName);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->parts(), tokenizer->parts());
}

// GPT-2's file lists <|endoftext|> in the vocabulary as well.
TEST(TokenizerJsonTest, AnAddedTokenMayStandInTheVocabularyToo) {
  Document document;
  document.extra_vocab += R"(, "<|end_of_text|>": 259)";
  const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(document.Text(), kName);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ(tokenizer->TokenBytes(259), "<|end_of_text|>");
}

TEST(TokenizerJsonTest, WritesAnyContentOfAnAddedToken) {
  TokenizerParts parts = SmallTokenizer().parts();
  parts.added.push_back({.id = 510, .content = "a \"b\"\n\\ 中\x01", .special = false});
  const StatusOr<Tokenizer> tokenizer = Tokenizer::FromParts(parts, kName);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const StatusOr<Tokenizer> again = Tokenizer::FromJson(tokenizer->ToJson(), kName);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->parts(), tokenizer->parts());
}

// What would change ids and is not understood, or what can't be: one error that names the file
// and the culprit.
TEST(TokenizerJsonTest, RefusesWhatItWouldGetWrong) {
  struct Wrong {
    const char* what;
    void (*change)(Document*);
    const char* in_message;
  };
  const Wrong kWrongs[] = {
      {"normalizer", [](Document* d) { d->normalizer = R"({"type": "NFKC"})"; }, "NFKC"},
      {"normalizer in a list",
       [](Document* d) {
         d->normalizer = R"({"type": "Sequence", "normalizers": [{"type": "NFC"},
             {"type": "Lowercase"}]})";
       },
       "Lowercase"},
      {"replacement without pattern",
       [](Document* d) { d->normalizer = R"({"type": "Replace", "content": "x"})"; }, "Replace"},
      {"decoder", [](Document* d) { d->decoder = R"({"type": "WordPiece"})"; }, "decoder"},
      {"pre-tokenizer", [](Document* d) { d->pre_tokenizer = R"({"type": "Metaspace"})"; },
       "Metaspace"},
      {"no pre-tokenizer", [](Document* d) { d->pre_tokenizer = "null"; }, "ByteLevel"},
      {"two ByteLevel",
       [](Document* d) {
         d->pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
             {"type": "ByteLevel"}]})";
       },
       "two ByteLevel"},
      {"split behaviour",
       [](Document* d) {
         d->pre_tokenizer =
             R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Scattered"})";
       },
       "Scattered"},
      {"split by nothing",
       [](Document* d) {
         d->pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
             "pattern": {"String": ""}, "behavior": "Removed"}, {"type": "ByteLevel"}]})";
       },
       "empty"},
      {"set within a set",
       [](Document* d) {
         d->pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
             "pattern": {"Regex": "[a-z&&[^b]]"}, "behavior": "Isolated"}, {"type":
             "ByteLevel"}]})";
       },
       "&&"},
      {"split expression",
       [](Document* d) {
         d->pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
             "pattern": {"Regex": "a(b"}, "behavior": "Isolated", "invert": false}, {"type":
             "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
       },
       "a(b"},
      {"post-processor",
       [](Document* d) { d->post_processor = R"({"type": "RobertaProcessing"})"; }, "cls"},
      {"other post-processor", [](Document* d) { d->post_processor = R"({"type": "X"})"; },
       "\"X\""},
      {"template without text",
       [](Document* d) { d->post_processor = R"({"type": "TemplateProcessing", "single": []})"; },
       "single"},
      {"template's id",
       [](Document* d) {
         d->post_processor = R"({"type": "TemplateProcessing", "single": [{"SpecialToken":
             {"id": "x"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"x": {"ids": [7777]}}})";
       },
       "7777"},
      {"template's token",
       [](Document* d) {
         d->post_processor =
             R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<nope>"}}]})";
       },
       "<nope>"},
      {"dropout", [](Document* d) { d->model_extra = R"(, "dropout": 0.1)"; }, "dropout"},
      {"byte_fallback", [](Document* d) { d->model_extra = R"(, "byte_fallback": true)"; },
       "byte_fallback"},
      {"affix", [](Document* d) { d->model_extra = R"(, "end_of_word_suffix": "</w>")"; },
       "end_of_word_suffix"},
      {"merge of an unknown token", [](Document* d) { d->merges = R"(["t h", "x yz"])"; }, "yz"},
      {"merge without its result", [](Document* d) { d->merges = R"(["t e"])"; }, "te"},
      {"merge of one", [](Document* d) { d->merges = R"(["th"])"; }, "merges[0]"},
      {"merge of three", [](Document* d) { d->merges = R"([["t", "h", "e"]])"; }, "merges[0]"},
      {"merge of numbers", [](Document* d) { d->merges = R"([[1, 2]])"; }, "merges[0]"},
      {"merges no list", [](Document* d) { d->merges = R"({})"; }, "merges"},
      {"id twice", [](Document* d) { d->extra_vocab = R"(, "th": 256, "the": 256, "he": 258)"; },
       "256"},
      {"key twice", [](Document* d) { d->extra_vocab += R"(, "th": 258)"; }, "th"},
      {"id negative", [](Document* d) { d->extra_vocab += R"(, "xy": -1)"; }, "-1"},
      {"id huge", [](Document* d) { d->extra_vocab += R"(, "xy": 2000000000)"; }, "2000000000"},
      {"id beyond 64 bits", [](Document* d) { d->extra_vocab += R"(, "xy": 1e30)"; }, "xy"},
      {"id no number", [](Document* d) { d->extra_vocab += R"(, "xy": "7")"; }, "xy"},
      {"empty token", [](Document* d) { d->extra_vocab += R"(, "": 300)"; }, "300"},
      {"byte's id taken",
       [](Document* d) { d->added = R"([{"id": 64, "content": "zz", "special": true}])"; }, "zz"},
      {"added twice",
       [](Document* d) {
         d->added = R"([{"id": 300, "content": "zz"}, {"id": 301, "content": "zz"}])";
       },
       "zz"},
      {"added ids twice",
       [](Document* d) {
         d->added = R"([{"id": 300, "content": "yy"}, {"id": 300, "content": "zz"}])";
       },
       "300"},
      {"added without content", [](Document* d) { d->added = R"([{"id": 300}])"; }, "content"},
      {"added empty", [](Document* d) { d->added = R"([{"id": 300, "content": ""}])"; }, "300"},
      {"flag no bool",
       [](Document* d) { d->added = R"([{"id": 300, "content": "zz", "lstrip": 3}])"; }, "lstrip"},
      {"added with another id",
       [](Document* d) { d->added = R"([{"id": 300, "content": "the"}])"; }, "257"},
      {"added no list", [](Document* d) { d->added = R"("x")"; }, "added_tokens"},
  };
  for (const Wrong& wrong : kWrongs) {
    Document document;
    wrong.change(&document);
    const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(document.Text(), kName);
    ASSERT_FALSE(tokenizer.ok()) << wrong.what;
    const std::string message = Message(tokenizer.status());
    EXPECT_NE(message.find(kName), std::string::npos) << message;
    EXPECT_NE(message.find(wrong.in_message), std::string::npos) << wrong.what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// tokenizers drops a byte without a token, so that its neighbours merge; with an unk_token it is
// that, one for each or for a run.
TEST(TokenizerJsonTest, BytesWithoutATokenAreDroppedOrUnknown) {
  Document document;
  std::string text = document.Text();
  const size_t at = text.find("\"A\":32,");
  ASSERT_NE(at, std::string::npos);
  text.erase(at, 7);
  const StatusOr<Tokenizer> dropping = Tokenizer::FromJson(text, kName);
  ASSERT_TRUE(dropping.ok()) << Message(dropping.status());
  EXPECT_EQ(Encode(*dropping, "tAhAe"), (std::vector<int32_t>{257}));
  EXPECT_EQ(Encode(*dropping, "AA"), (std::vector<int32_t>{}));

  const size_t end = text.rfind("}}");
  for (const bool fuse : {false, true}) {
    std::string with_unk = text;
    with_unk.insert(end, StrCat(", \"unk_token\": \"he\", \"fuse_unk\": ", fuse));
    const StatusOr<Tokenizer> unknown = Tokenizer::FromJson(with_unk, kName);
    ASSERT_TRUE(unknown.ok()) << Message(unknown.status());
    EXPECT_EQ(Encode(*unknown, "thAAe"), fuse ? (std::vector<int32_t>{256, 258, 68})
                                              : (std::vector<int32_t>{256, 258, 258, 68}));
    const StatusOr<Tokenizer> again = Tokenizer::FromJson(unknown->ToJson(), kName);
    ASSERT_TRUE(again.ok()) << Message(again.status());
    EXPECT_EQ(again->parts(), unknown->parts());
  }
  text.insert(end, R"(, "unk_token": "nowhere")");
  const StatusOr<Tokenizer> refused = Tokenizer::FromJson(text, kName);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(Message(refused.status()).find("nowhere"), std::string::npos);
}

// An entry outside of the byte alphabet can be decoded, and no text gets it.
TEST(TokenizerJsonTest, VocabularyMayHaveEntriesThatStandForNoBytes) {
  Document document;
  document.extra_vocab += R"(, "a b": 260, "中": 261)";
  document.model_extra = R"(, "ignore_merges": true)";
  document.pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(document.Text(), kName);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ(Encode(*tokenizer, "a b").size(), 3u);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{260, 261}), "a b中");
  const StatusOr<Tokenizer> again = Tokenizer::FromJson(tokenizer->ToJson(), kName);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->parts(), tokenizer->parts());
}

// Ids that don't follow the vocabulary's must stand in it, or readers count them anew.
TEST(TokenizerJsonTest, ListsAddedTokensInTheVocabularyWhereIdsWouldMove) {
  Document document;
  const StatusOr<Tokenizer> last = Tokenizer::FromJson(document.Text(), kName);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->ToJson().find("\"<|end_of_text|>\": 259"), std::string::npos);
  document.added = R"([{"id": 262, "content": "<|end_of_text|>", "special": true}])";
  const StatusOr<Tokenizer> behind_gap = Tokenizer::FromJson(document.Text(), kName);
  ASSERT_TRUE(behind_gap.ok());
  EXPECT_NE(behind_gap->ToJson().find("\"<|end_of_text|>\": 262"), std::string::npos);
  document.added = R"([{"id": 259, "content": "<|end_of_text|>", "special": true}])";
  document.extra_vocab += R"(, "thee": 260)";
  const StatusOr<Tokenizer> first = Tokenizer::FromJson(document.Text(), kName);
  ASSERT_TRUE(first.ok());
  EXPECT_NE(first->ToJson().find("\"<|end_of_text|>\": 259"), std::string::npos);
}

TEST(TokenizerJsonTest, OtherDocumentsAreErrors) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::string deep_member = StrCat("{\"model\": ", deep, "}");
  for (const std::string& text :
       {std::string(), std::string("null"), std::string("[]"), std::string("{}"),
        std::string("{\"model\": 3}"), std::string("\xFF\xFE"), std::string(1000, '\0'), deep,
        deep_member, std::string("{\"model\": {\"vocab\": {}, \"merges\": []}}")}) {
    const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(text, kName);
    ASSERT_FALSE(tokenizer.ok()) << text.substr(0, 60);
    EXPECT_NE(Message(tokenizer.status()).find(kName), std::string::npos);
  }
  EXPECT_FALSE(Tokenizer::Load("/nonexistent/tokenizer.json").ok());
}

TEST(TokenizerJsonTest, EveryTruncationIsAnError) {
  const std::string text = SmallTokenizer().ToJson();
  const size_t end = text.rfind('}');
  for (size_t size = 0; size <= end; size += size + 200 < end ? 97 : 1) {
    const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(text.substr(0, size), kName);
    ASSERT_FALSE(tokenizer.ok()) << "cut to " << size;
    ASSERT_NE(Message(tokenizer.status()).find(kName), std::string::npos);
  }
}

// A flipped bit may leave a valid file (another token's letter); what loads must work.
TEST(TokenizerJsonTest, NoFlippedBitCrashes) {
  const std::string good = SmallTokenizer().ToJson();
  const Rng rng(11, StreamOf("flip"));
  int num_refused = 0;
  for (size_t region = 0; region + 16 < good.size(); region += 16) {
    std::string text = good;
    const size_t at = region + rng.Below(2 * region, 16);
    text[at] = static_cast<char>(text[at] ^ (1 << rng.Below(2 * region + 1, 8)));
    const StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(text, kName);
    if (!tokenizer.ok()) {
      ++num_refused;
      ASSERT_NE(Message(tokenizer.status()).find(kName), std::string::npos);
      continue;
    }
    const std::string sample = "the house of 12345 中文 <|end_of_text|>";
    std::vector<int32_t> ids;
    tokenizer->Encode(sample, {.parse_special = true, .add_template = true}, &ids);
    if (!tokenizer->parts().MissingByte().has_value()) {
      ASSERT_NE(tokenizer->Decode(ids).find("house"), std::string::npos) << "flipped at " << at;
    }
    ASSERT_TRUE(Tokenizer::FromJson(tokenizer->ToJson(), kName).ok()) << "flipped at " << at;
  }
  EXPECT_GT(num_refused, 100);
}

}  // namespace
}  // namespace cria::trainer

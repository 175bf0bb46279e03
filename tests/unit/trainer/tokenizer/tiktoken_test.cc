#include "trainer/tokenizer/tiktoken.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/rng.h"
#include "tests/unit/trainer/tokenizer/samples.h"
#include "trainer/tokenizer/load_tokenizer.h"

namespace cria::trainer {
namespace {

constexpr char kName[] = "folder/tokenizer.model";

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<uint8_t>(c);
    for (num_bits += 8; num_bits >= 6; num_bits -= 6) text += kDigits[bits >> (num_bits - 6) & 63];
  }
  if (num_bits > 0) text += kDigits[bits << (6 - num_bits) & 63];
  while (text.size() % 4 != 0) text += '=';
  return text;
}

// The bytes in their order, then `more`.
std::string File(const std::vector<std::string>& more) {
  std::string text;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    text += StrCat(Base64({&c, 1}), " ", rank++, "\n");
  }
  for (const std::string& token : more) text += StrCat(Base64(token), " ", rank++, "\n");
  return text;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text,
                            const EncodeOptions& options = {}) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, options, &ids);
  return ids;
}

Tokenizer Load(const std::vector<std::string>& more, const TiktokenOptions& options = {}) {
  const StatusOr<Tokenizer> tokenizer = TiktokenFromText(File(more), options, kName);
  EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  return *tokenizer;
}

TEST(TiktokenTest, ReadsTokensAndAddsLlamasSpecialsAndTemplate) {
  const Tokenizer tokenizer = Load({"th", "the", " the"});
  EXPECT_EQ(tokenizer.vocab_size(), 259 + 256);
  EXPECT_EQ(tokenizer.bos_id(), 259);
  EXPECT_EQ(tokenizer.eos_id(), 260);
  EXPECT_EQ(Encode(tokenizer, "the the"), (std::vector<int32_t>{257, 258}));
  EXPECT_EQ(Encode(tokenizer, "th<|eot_id|>", {.parse_special = true, .add_template = true}),
            (std::vector<int32_t>{259, 256, 259 + 9}));
  EXPECT_TRUE(tokenizer.IsSpecial(259 + 255));
}

// research: 128000 begin, 128004 finetune_right_pad_id (reserved in Llama 3.0), 128005 step_id
// (reserved_2 in Hugging Face's list), 128008 eom_id, 128009 eot_id, 128010 python_tag.
TEST(TiktokenTest, SpecialsAreThoseOfTheRelease) {
  const auto v30 = TiktokenSpecialNames(TiktokenSpecials::kLlama30);
  const auto v31 = TiktokenSpecialNames(TiktokenSpecials::kLlama31);
  const auto hf = TiktokenSpecialNames(TiktokenSpecials::kLlama31HuggingFace);
  for (const auto& names : {v30, v31, hf}) {
    ASSERT_EQ(names.size(), 256u);
    EXPECT_EQ(names[0], "<|begin_of_text|>");
    EXPECT_EQ(names[1], "<|end_of_text|>");
    EXPECT_EQ(names[3], "<|reserved_special_token_1|>");
    EXPECT_EQ(names[6], "<|start_header_id|>");
    EXPECT_EQ(names[7], "<|end_header_id|>");
    EXPECT_EQ(names[9], "<|eot_id|>");
  }
  EXPECT_EQ(v30[4], "<|reserved_special_token_2|>");
  EXPECT_EQ(v30[8], "<|reserved_special_token_4|>");
  EXPECT_EQ(v30[10], "<|reserved_special_token_5|>");
  EXPECT_EQ(v30[255], "<|reserved_special_token_250|>");
  EXPECT_EQ(v31[4], "<|finetune_right_pad_id|>");
  EXPECT_EQ(v31[5], "<|step_id|>");
  EXPECT_EQ(v31[8], "<|eom_id|>");
  EXPECT_EQ(v31[10], "<|python_tag|>");
  EXPECT_EQ(v31[11], "<|reserved_special_token_2|>");
  EXPECT_EQ(v31[255], "<|reserved_special_token_246|>");
  EXPECT_EQ(hf[5], "<|reserved_special_token_2|>");
  EXPECT_EQ(hf[11], "<|reserved_special_token_3|>");
  EXPECT_EQ(hf[255], "<|reserved_special_token_247|>");
  EXPECT_TRUE(TiktokenSpecialNames(TiktokenSpecials::kNone).empty());
}

// tiktoken merges whatever makes a token. "abcd" as ab|cd is reached, as abc|d would be.
TEST(TiktokenTest, EveryCutOfATokenIsAMerge) {
  const Tokenizer tokenizer = Load({"bc", "ab", "cd", "abc", "abcd"});
  EXPECT_EQ(Encode(tokenizer, "xabcd"), (std::vector<int32_t>{'x', 260}));
  EXPECT_EQ(tokenizer.parts().merges, (std::vector<BpeMerge>{{'b', 'c', 256},
                                                             {'a', 'b', 257},
                                                             {'c', 'd', 258},
                                                             {'a', 256, 259},
                                                             {257, 'c', 259},
                                                             {257, 258, 260},
                                                             {259, 'd', 260}}));
}

TEST(TiktokenTest, ConvertsToTokenizerJsonWithTheSameIds) {
  const Tokenizer tokenizer =
      Load({"th", "he", "the", " t", " the", "in", "ing", "  ", "    ", "\n\n", "00", "中"});
  const StatusOr<Tokenizer> json = Tokenizer::FromJson(tokenizer.ToJson(), "tokenizer.json");
  ASSERT_TRUE(json.ok()) << Message(json.status());
  EXPECT_TRUE(json->parts().ignore_merges);
  EXPECT_EQ(json->bos_id(), tokenizer.bos_id());
  for (uint64_t i = 0; i < 300; ++i) {
    const std::string text = RandomText(31, i, 60);
    const EncodeOptions options{.parse_special = true, .add_template = true};
    EXPECT_EQ(Encode(tokenizer, text, options), Encode(*json, text, options)) << text;
  }
  const StatusOr<std::string> again = TiktokenText(*json);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(*again,
            File({"th", "he", "the", " t", " the", "in", "ing", "  ", "    ", "\n\n", "00", "中"}));
}

TEST(TiktokenTest, WritesOnlyWhatTiktokenWouldEncodeAlike) {
  TokenizerParts parts = Load({"ab", "bc", "abc"}).parts();
  parts.merges.pop_back();
  StatusOr<Tokenizer> tokenizer = Tokenizer::FromParts(parts, kName);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(TiktokenText(*tokenizer).status().code(), StatusCode::kFailedPrecondition);
  parts = Load({"ab", "bc", "abc"}).parts();
  parts.ignore_merges = false;
  tokenizer = Tokenizer::FromParts(parts, kName);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(TiktokenText(*tokenizer).status().code(), StatusCode::kFailedPrecondition);
}

TEST(TiktokenTest, OtherFilesAreOneErrorThatNamesTheLine) {
  const std::string good = File({"th"});
  struct Wrong {
    std::string text;
    const char* in_message;
  };
  const std::vector<Wrong> wrongs = {
      {"", "empty"},
      {"\n", ":1"},
      {good + "\n", ":258"},
      {good + "dGhl\n", ":258"},
      {good + "dGhl x\n", "\"x\""},
      {good + "dGhl 257 \n", "257"},
      {good + "dGhl -1\n", "-1"},
      {good + "dGhl 258\n", "258"},
      {good + "dGhl 256\n", "twice"},
      {good + "dGhl 99999999999999999999\n", "rank"},
      {good + "dGh= 257\n", "base64"},   // a bit beyond the last byte
      {good + "dGg== 257\n", "base64"},  // not a multiple of four
      {good + "d=== 257\n", "base64"},
      {good + "dGg= 257\n", "two ids"},  // "th" again
      {good + "dG*l 257\n", "base64"},
      {good + " 257\n", "base64"},
      {good + "dGhl 257\r\n", ":258"},
      {good + Base64(std::string(1025, 'x')) + " 257\n", "1025 bytes"},
      {good.substr(good.find('\n') + 1), "rank"},
      {File({}).substr(0, File({}).rfind("/w==")) + "dGhl 255\n", "byte 255"},
      {std::string("\x0A\x0E\x0A\x05<unk>\x15\0\0\0\0\x18\x02", 16), "sentencepiece"},
      {std::string("\x80\x02}q\0", 5), ":1"},
  };
  for (const Wrong& wrong : wrongs) {
    const StatusOr<Tokenizer> tokenizer = TiktokenFromText(wrong.text, {}, kName);
    ASSERT_FALSE(tokenizer.ok()) << wrong.in_message;
    const std::string message = Message(tokenizer.status());
    EXPECT_EQ(message.find(kName), 0u) << message;
    EXPECT_NE(message.find(wrong.in_message), std::string::npos)
        << wrong.in_message << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// The lines may come in any order, and the last may lack its line end.
TEST(TiktokenTest, RanksDecideNotTheOrderOfTheLines) {
  const std::string text = File({"th"});
  const size_t half = text.find('\n', text.size() / 2) + 1;
  std::string turned = text.substr(half) + text.substr(0, half);
  turned.pop_back();
  const StatusOr<Tokenizer> tokenizer = TiktokenFromText(turned, {}, kName);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ(Encode(*tokenizer, "th"), (std::vector<int32_t>{256}));
}

// Cut or flipped anywhere, a file is an error or a tokenizer that works.
TEST(TiktokenTest, DamagedFilesNeverCrash) {
  const std::string good = File({"th", "the", " the", "house"});
  const Rng rng(17, StreamOf("flip"));
  int num_refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const bool is_cut : {true, false}) {
      if (is_cut && at % 7 != 0) continue;
      std::string text = is_cut ? good.substr(0, at) : good;
      if (!is_cut) text[at] = static_cast<char>(text[at] ^ (1 << rng.Below(at, 8)));
      const StatusOr<Tokenizer> tokenizer = TiktokenFromText(text, {}, kName);
      if (!tokenizer.ok()) {
        ++num_refused;
        ASSERT_EQ(Message(tokenizer.status()).find(kName), 0u);
        continue;
      }
      const std::vector<int32_t> ids = Encode(*tokenizer, "the house of 12 中", {});
      ASSERT_EQ(tokenizer->Decode(ids), "the house of 12 中");
    }
  }
  EXPECT_GT(num_refused, 1000);
}

TEST(LoadTokenizerTest, TakesFilesOfBothKindsAndFolders) {
  const std::string dir = JoinPath(std::getenv("TEST_TMPDIR"), "model");
  ASSERT_TRUE(RemoveAll(dir).ok());
  ASSERT_TRUE(MakeDirs(dir).ok());
  EXPECT_EQ(LoadTokenizer(dir).status().code(), StatusCode::kNotFound);
  const std::string model = JoinPath(dir, "tokenizer.model");
  ASSERT_TRUE(WriteFileAtomic(model, File({"th"})).ok());
  for (const std::string& path : {dir, model}) {
    const StatusOr<Tokenizer> tokenizer = LoadTokenizer(path);
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    EXPECT_EQ(tokenizer->vocab_size(), 257 + 256);
  }
  EXPECT_EQ(*TokenizerFileKindOf(model), TokenizerFileKind::kTiktoken);
  const std::string json = JoinPath(dir, "tokenizer.json");
  ASSERT_TRUE(SmallTokenizer().Save(json).ok());
  EXPECT_EQ(*TokenizerFileKindOf(json), TokenizerFileKind::kHuggingFace);
  EXPECT_EQ(LoadTokenizer(dir)->Fingerprint(), SmallTokenizer().Fingerprint());
  EXPECT_EQ(LoadTokenizer(model)->vocab_size(), 257 + 256);
  EXPECT_EQ(LoadTokenizer("/nonexistent").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cria::trainer

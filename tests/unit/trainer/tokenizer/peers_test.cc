// Our ids and merges against those of Hugging Face's tokenizers, computed now, on random texts.

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "tests/unit/trainer/tokenizer/samples.h"
#include "trainer/bench/peer_process.h"
#include "trainer/tokenizer/bpe_trainer.h"

namespace cria::trainer {
namespace {

constexpr double kDeadlineSeconds = 600;

class TokenizersPeerTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* const python = std::getenv("CRIA_PEER_PYTHON");
    if (python == nullptr || *python == '\0') {
      GTEST_SKIP() << "CRIA_PEER_PYTHON names no interpreter with tokenizers (./cria test --peers)";
    }
    const StatusOr<std::string> script = FindPeerScript("tokenizer_peer.py");
    ASSERT_TRUE(script.ok()) << Message(script.status());
    StatusOr<std::unique_ptr<PeerProcess>> peer =
        PeerProcess::Start(python, *script, kDeadlineSeconds);
    ASSERT_TRUE(peer.ok()) << Message(peer.status());
    peer_ = std::move(peer).value();
    if (peer_->greeting().find("no tokenizers") != std::string::npos) {
      GTEST_SKIP() << python << " has no package tokenizers";
    }
  }

  static std::string File(const char* name) { return JoinPath(std::getenv("TEST_TMPDIR"), name); }

  void Ask(const std::string& question) {
    const StatusOr<std::string> answer = peer_->Ask(question, kDeadlineSeconds);
    ASSERT_TRUE(answer.ok()) << Message(answer.status());
  }

  void Load(const Tokenizer& tokenizer, const std::string& text) {
    ASSERT_TRUE(tokenizer.Save(File("tokenizer.json")).ok());
    ASSERT_TRUE(WriteFileAtomic(File("text"), text).ok());
    Ask(StrCat("load\t", File("tokenizer.json"), "\t", File("text")));
  }

  std::unique_ptr<PeerProcess> peer_;
};

TEST_F(TokenizersPeerTest, TenThousandRandomTextsGetTheSameIds) {
  const Tokenizer& tokenizer = SmallTokenizer();
  Load(tokenizer, "");
  Json texts = Json::array();
  for (uint64_t i = 0; i < 10000; ++i) texts.push_back(RandomText(20, i, i % 100 == 0 ? 2000 : 25));
  ASSERT_TRUE(WriteJsonFile(File("texts.json"), texts).ok());
  Ask(StrCat("encode\ttokenizers\t", File("texts.json"), "\t", File("ids.json")));
  const StatusOr<Json> want = ReadJsonFile(File("ids.json"));
  ASSERT_TRUE(want.ok()) << Message(want.status());
  ASSERT_EQ(want->size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<int32_t> ids;
    tokenizer.Encode(texts[i].get<std::string>(), {.parse_special = true}, &ids);
    ASSERT_EQ(Json(ids), (*want)[i]) << "RandomText(20, " << i << "): " << texts[i];
  }
}

TEST_F(TokenizersPeerTest, TrainingLearnsTheSameMerges) {
  std::string text = TrainingText();
  for (uint64_t i = 0; i < 3000; ++i) text += RandomText(21, i, 20);
  StatusOr<BpeTrainer> trainer = BpeTrainer::Create({.vocab_size = 2002, .pair_count_min = 1});
  ASSERT_TRUE(trainer.ok());
  trainer->AddText(text);
  const StatusOr<Tokenizer> ours = trainer->Train();
  ASSERT_TRUE(ours.ok()) << Message(ours.status());
  Load(*ours, text);
  Ask(StrCat("train\ttokenizers\t2000\t", File("theirs.json")));
  const StatusOr<Json> json = ReadJsonFile(File("theirs.json"));
  ASSERT_TRUE(json.ok());
  const StatusOr<Json> our_json = ParseJson(ours->ToJson(), "ours");
  ASSERT_TRUE(our_json.ok());
  const Json& want = (*json)["model"]["merges"];
  const Json& got = (*our_json)["model"]["merges"];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string pair = want[i].is_string() ? want[i].get<std::string>()
                                                 : StrCat(want[i][0].get<std::string>(), " ",
                                                          want[i][1].get<std::string>());
    ASSERT_EQ(got[i].get<std::string>(), pair) << "merge " << i;
  }
}

}  // namespace
}  // namespace cria::trainer

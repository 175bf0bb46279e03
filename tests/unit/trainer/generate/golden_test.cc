// PyTorch's greedy continuations, however the work is cut.

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "model/cpu/cpu_ops.h"
#include "trainer/generate/generator.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

class GoldenGenerateTest : public testing::TestWithParam<std::string> {
 protected:
  void Open(const std::string& dir) {
    auto opened = OpenModel(dir);
    ASSERT_TRUE(opened.ok()) << opened.status();
    files_ = *std::move(opened);
    const Json greedy = ReadJsonFile(JoinPath(dir, "expected.json"))->at("greedy");
    prompt_ = greedy.at("prompt").get<std::vector<int32_t>>();
    expected_ = greedy.at("continuation").get<std::vector<int32_t>>();
    ASSERT_EQ(expected_.size(), 32u);
  }

  // The prompt with k tokens of the continuation, for each k, at once: each gives the rest.
  void ExpectTheRestFromEveryCut(const model::DecoderOptions& options) {
    SCOPED_TRACE(StrCat(options.max_sequences, " sequences, ", options.max_rows, " rows"));
    const auto decoder =
        model::LlamaDecoder::Load(files_.config, options, *files_.weights, ops_.get());
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    FakeClock clock;
    Generator generator(decoder->get(), nullptr, &clock);
    std::vector<Prompt> prompts;
    for (size_t cut = 0; cut < expected_.size(); ++cut) {
      prompts.push_back({.ids = prompt_, .index = cut});
      prompts.back().ids.insert(prompts.back().ids.end(), expected_.begin(),
                                expected_.begin() + static_cast<int64_t>(cut));
    }
    const auto out = generator.Run(prompts, {.max_tokens = 32});
    ASSERT_TRUE(out.ok()) << out.status();
    for (size_t cut = 0; cut < expected_.size(); ++cut) {
      // As far as there is something to compare with.
      const std::vector<int32_t> rest(expected_.begin() + static_cast<int64_t>(cut),
                                      expected_.end());
      std::vector<int32_t> ids = (*out)[cut].ids;
      ASSERT_EQ(ids.size(), 32u);
      ids.resize(rest.size());
      EXPECT_EQ(ids, rest) << "cut at " << cut;
    }
  }

  ModelFiles files_;
  std::vector<int32_t> prompt_, expected_;
  const std::unique_ptr<model::Ops> ops_ = model::cpu::NewCpuOps();
};

INSTANTIATE_TEST_SUITE_P(Models, GoldenGenerateTest,
                         testing::Values("gqa_llama31", "tied_headdim", "mha_linear"),
                         [](const auto& info) { return info.param; });

TEST_P(GoldenGenerateTest, GivesPyTorchsTokensAloneAndInABatch) {
  ASSERT_NO_FATAL_FAILURE(Open(JoinPath("tests/golden", GetParam())));
  ExpectTheRestFromEveryCut({.max_sequences = 1, .max_positions = 80});
  ExpectTheRestFromEveryCut(
      {.max_sequences = 3, .max_positions = 80, .max_rows = 5, .max_logits = 2});
  ExpectTheRestFromEveryCut({.max_sequences = 32, .max_positions = 80});
}

TEST_P(GoldenGenerateTest, GivesPyTorchsTokensForTheLargerModels) {
  const char* const data = std::getenv("CRIA_TEST_DATA");
  const std::string dir = JoinPath(JoinPath(data == nullptr ? "" : data, "golden"), GetParam());
  if (data == nullptr || !IsDir(dir)) {
    GTEST_SKIP() << "no " << GetParam() << " in CRIA_TEST_DATA/golden; tests/golden was checked";
  }
  ASSERT_NO_FATAL_FAILURE(Open(dir));
  ExpectTheRestFromEveryCut({.max_sequences = 5, .max_positions = 128, .max_rows = 32});
}

}  // namespace
}  // namespace cria::trainer

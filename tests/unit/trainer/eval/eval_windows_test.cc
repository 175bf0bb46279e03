#include "trainer/eval/eval_windows.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "tests/support/tiny_run.h"

namespace cria::trainer {
namespace {

constexpr int32_t kStart = 0;

// Documents of 1 to 12 tokens, each beginning with kStart.
std::vector<int32_t> Documents(int64_t num_tokens, uint64_t seed) {
  const Rng rng(seed, StreamOf("eval windows test"));
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; static_cast<int64_t>(tokens.size()) < num_tokens; ++i) {
    tokens.push_back(kStart);
    for (uint64_t n = rng.Below(2 * i, 12); n > 0; --n) {
      tokens.push_back(static_cast<int32_t>(1 + rng.Below(1000 * i + n, 50)));
    }
  }
  tokens.resize(static_cast<size_t>(num_tokens));
  return tokens;
}

struct Shape {
  int64_t num_tokens, seq, stride;
};

class EvalWindowsTest : public testing::TestWithParam<Shape> {};

TEST_P(EvalWindowsTest, PredictsEachTokenOnceWithTheContextThatItPromises) {
  const auto [num_tokens, seq, stride] = GetParam();
  const std::vector<int32_t> tokens = Documents(num_tokens, 1);
  const auto text = TokensInMemory("t", tokens, kStart);
  const EvalWindows windows(text.get(), {.seq = seq, .stride = stride, .vocab = 51});
  std::map<int64_t, int64_t> predicted;  // input's index in the text -> context it had
  Batch batch;
  for (int64_t w = 0; w < windows.count(); ++w) {
    ASSERT_TRUE(windows.Read(w, 1, &batch).ok());
    for (int64_t t = 0; t < seq; ++t) {
      const auto at = static_cast<size_t>(t);
      const int64_t i = w * stride + t;
      if (i < num_tokens) {
        EXPECT_EQ(batch.tokens_BT[at], tokens[static_cast<size_t>(i)]);
      }
      EXPECT_EQ(batch.positions_BT[at], t - batch.doc_start_BT[at]);
      if (batch.targets_BT[at] == kNoTarget) continue;
      ASSERT_LT(i + 1, num_tokens);
      EXPECT_EQ(batch.targets_BT[at], tokens[static_cast<size_t>(i + 1)]);
      EXPECT_TRUE(predicted.emplace(i, t - batch.doc_start_BT[at] + 1).second) << "twice: " << i;
    }
  }
  int64_t document = 0;
  for (int64_t i = 0; i < num_tokens; ++i) {
    if (tokens[static_cast<size_t>(i)] == kStart) document = i;
    const bool ends = i + 1 == num_tokens || tokens[static_cast<size_t>(i + 1)] == kStart;
    ASSERT_EQ(predicted.contains(i), !ends) << i;
    if (ends) continue;
    const int64_t available = i - document + 1;
    EXPECT_LE(predicted[i], std::min(available, seq));
    // From the second window on, all but what stride leaves is there.
    EXPECT_GE(predicted[i], std::min({available, i + 1, seq - stride + 1}));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EvalWindowsTest,
                         testing::Values(Shape{100, 16, 16}, Shape{100, 16, 7}, Shape{100, 16, 1},
                                         Shape{96, 16, 16}, Shape{97, 16, 16}, Shape{5, 16, 16},
                                         Shape{16, 16, 3}, Shape{17, 16, 3}, Shape{1, 4, 4},
                                         Shape{33, 1, 1}),
                         [](const auto& info) {
                           return StrCat(info.param.num_tokens, "_", info.param.seq, "_",
                                         info.param.stride);
                         });

TEST(EvalWindowsTest, WithoutAStrideAreTheTrainersValidation) {
  const auto dataset = TokenDataset::Open(TinyData(), "val");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto text = OpenTokenFolder(TinyData(), "val", nullptr);
  ASSERT_TRUE(text.ok()) << text.status();
  const BatchStream stream(&*dataset, {.seq = 32, .shuffle = false});
  const EvalWindows windows(text->get(), {.seq = 32, .stride = 32, .vocab = 300});
  ASSERT_EQ(windows.count(), stream.samples_per_epoch());
  ASSERT_GT(windows.count(), 3);
  Batch got, want;
  ASSERT_TRUE(windows.Read(0, windows.count(), &got).ok());
  stream.Read(0, windows.count(), &want);
  EXPECT_EQ(got.targets_BT, want.targets_BT);
  EXPECT_EQ(got.positions_BT, want.positions_BT);
  EXPECT_EQ(got.doc_start_BT, want.doc_start_BT);
  EXPECT_EQ(got.num_valid, want.num_valid);
  const auto real = static_cast<int64_t>((*text)->num_tokens());
  got.tokens_BT.resize(static_cast<size_t>(real));  // padding is anybody's
  want.tokens_BT.resize(static_cast<size_t>(real));
  EXPECT_EQ(got.tokens_BT, want.tokens_BT);
}

TEST(EvalWindowsTest, TheFirstTokensPredictTheOneBehindThem) {
  const auto text = TokensInMemory("t", {5, 6, 7, 8, 9, 10}, std::nullopt);
  const EvalWindows windows(text.get(), {.seq = 2, .stride = 2, .tokens_max = 3, .vocab = 20});
  ASSERT_EQ(windows.count(), 2);
  Batch batch;
  ASSERT_TRUE(windows.Read(0, 2, &batch).ok());
  EXPECT_EQ(batch.targets_BT, (std::vector<int32_t>{6, 7, 8, kNoTarget}));
}

TEST(EvalWindowsTest, ATokenOutsideTheVocabularyIsNamedWithBothNumbers) {
  const auto text = TokensInMemory("shard.bin", {1, 2, 300, 3}, std::nullopt);
  const EvalWindows windows(text.get(), {.seq = 2, .stride = 2, .vocab = 256});
  Batch batch;
  const Status status = windows.Read(0, 1, &batch);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "shard.bin: token 2 is 300; the model's vocabulary has 256");
}

TEST(EvalWindowsTest, AnEmptyTextHasNoWindow) {
  const auto text = TokensInMemory("t", {}, std::nullopt);
  EXPECT_EQ(EvalWindows(text.get(), {.seq = 4, .stride = 2, .vocab = 9}).count(), 0);
}

}  // namespace
}  // namespace cria::trainer

#include "trainer/eval/choice_tokens.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_run.h"
#include "trainer/data/data_tokenizer.h"

namespace cria::trainer {
namespace {

class ChoiceTokensTest : public testing::Test {
 protected:
  ChoiceTokensTest()
      : tokenizer_(*LoadDataTokenizer(TinyData(), *ReadManifest(TinyData()))),
        bos_(*tokenizer_.bos_id()) {}

  std::string Text(const std::vector<int32_t>& ids) const { return tokenizer_.Decode(ids, true); }

  StatusOr<ChoiceTokens> Encode(const std::string& context, const std::vector<std::string>& choices,
                                ChoiceTokensOptions options) const {
    return EncodeChoices({.line = 1, .context = context, .choices = choices}, tokenizer_, options,
                         "q:1");
  }

  const Tokenizer tokenizer_;
  const int32_t bos_;
};

TEST_F(ChoiceTokensTest, AChoiceContinuesTheContextAfterASpace) {
  const auto tokens =
      Encode("the llama", {"watches the river.", "waits"}, {.bos_id = bos_, .positions_max = 64});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->contexts.size(), 1u);
  EXPECT_EQ(tokens->contexts[0][0], bos_);
  EXPECT_EQ(Text(tokens->contexts[0]), "the llama");
  EXPECT_EQ(Text(tokens->continuations[0]), " watches the river.");
  EXPECT_EQ(Text(tokens->continuations[1]), " waits");
  EXPECT_FALSE(tokens->is_truncated);
  std::vector<int32_t> whole = {bos_};
  tokenizer_.Encode("the llama waits", &whole);
  std::vector<int32_t> joined = tokens->contexts[0];
  joined.insert(joined.end(), tokens->continuations[1].begin(), tokens->continuations[1].end());
  EXPECT_EQ(joined, whole);
}

TEST_F(ChoiceTokensTest, WhiteSpaceAtTheContextsEndGoesToTheChoice) {
  for (const std::string end : {" ", "\n", "\t \n", "\xc2\xa0", "\xe3\x80\x80 "}) {
    const auto tokens = Encode("the llama" + end, {"waits", "x"}, {.positions_max = 64});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(Text(tokens->contexts[0]), "the llama");
    EXPECT_EQ(Text(tokens->continuations[0]), end + " waits");
  }
  // Not white space to Python: a zero-width space, a byte that continues another character.
  EXPECT_EQ(StripEnd("a\xe2\x80\x8b"), "a\xe2\x80\x8b");
  EXPECT_EQ(StripEnd("\xc4\xa0"), "\xc4\xa0");
  EXPECT_EQ(StripEnd("  \n"), "");
}

TEST_F(ChoiceTokensTest, AnEmptyContextBeginsWithThePrefix) {
  const auto with_bos = Encode("", {"a", "b"}, {.bos_id = bos_, .positions_max = 8});
  ASSERT_TRUE(with_bos.ok());
  EXPECT_EQ(with_bos->contexts[0], (std::vector<int32_t>{bos_}));
  EXPECT_EQ(Text(with_bos->continuations[0]), " a");
  const auto with_prefix = Encode("", {"a", "b"}, {.prefix_id = 7, .positions_max = 8});
  ASSERT_TRUE(with_prefix.ok());
  EXPECT_EQ(with_prefix->contexts[0], (std::vector<int32_t>{7}));
  EXPECT_EQ(Text(with_prefix->continuations[1]), " b");
  const Status none = Encode("", {"a", "b"}, {.positions_max = 8}).status();
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Message(none).starts_with("q:1: ")) << none;
}

// positions_max tokens go in; one more is predicted.
TEST_F(ChoiceTokensTest, ALongContextLosesItsStartForEachChoiceApart) {
  const std::string context = TinyText(3);
  const auto full = Encode(context, {"a", "a cloud"}, {.bos_id = bos_, .positions_max = 1000});
  ASSERT_TRUE(full.ok());
  const auto& ids = full->contexts[0];
  const auto one = static_cast<int64_t>(full->continuations[0].size());
  const auto two = static_cast<int64_t>(full->continuations[1].size());
  ASSERT_LT(one, two);
  const int64_t exact = static_cast<int64_t>(ids.size()) + two - 1;
  EXPECT_FALSE(
      Encode(context, {"a", "a cloud"}, {.bos_id = bos_, .positions_max = exact})->is_truncated);
  for (const int64_t positions : {exact - 1, exact - 5, two}) {
    const auto cut =
        Encode(context, {"a", "a cloud"}, {.bos_id = bos_, .positions_max = positions});
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_TRUE(cut->is_truncated);
    ASSERT_EQ(cut->contexts.size(), 2u);
    const int64_t lengths[] = {one, two};
    for (size_t c = 0; c < 2; ++c) {
      const auto keep =
          std::min<int64_t>(static_cast<int64_t>(ids.size()), positions + 1 - lengths[c]);
      EXPECT_EQ(cut->ContextOf(c), std::vector<int32_t>(ids.end() - keep, ids.end()));
    }
  }
  const Status status =
      Encode(context, {"a", "a cloud"}, {.bos_id = bos_, .positions_max = two - 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            StrCat("q:1: choice 1 has ", two, " tokens; the model takes ", two - 1));
}

}  // namespace
}  // namespace cria::trainer

// trainer/data/val_split.h and text_sample.h: every corpus gives both splits something, a big one
// is not read to its end, and a sample is bounded and even.

#include "trainer/data/val_split.h"

#include "gtest/gtest.h"
#include "trainer/data/text_sample.h"

namespace cria::trainer {
namespace {

// Surveys documents of one byte each until decided; returns how many were shown.
uint64_t Survey(ValSplit* split, uint64_t num_documents) {
  uint64_t document = 0;
  while (document < num_documents && !split->decided()) {
    split->Survey({.document = document++, .is_first = true, .is_last = true, .text = "x"});
  }
  return document;
}

TEST(ValSplitTest, BothSidesGetADocumentWhateverTheSeed) {
  for (const double fraction : {0.02, 0.5, 0.98}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      for (const uint64_t num_documents : {2, 3, 5, 40}) {
        ValSplit split(fraction, seed);
        Survey(&split, num_documents);
        ASSERT_TRUE(split.Finish().ok());
        uint64_t num_val = 0;
        for (uint64_t d = 0; d < num_documents; ++d) num_val += split.IsVal(d);
        ASSERT_GE(num_val, 1u) << "seed " << seed << " fraction " << fraction;
        ASSERT_LT(num_val, num_documents) << "seed " << seed << " fraction " << fraction;
      }
    }
  }
}

TEST(ValSplitTest, HoldsOutTheFractionAndReadsOnlyTheFirstDocuments) {
  ValSplit split(0.02, 5);
  EXPECT_LT(Survey(&split, 1'000'000), 1000u);
  ASSERT_TRUE(split.Finish().ok());
  int64_t num_val = 0;
  for (uint64_t d = 0; d < 100'000; ++d) num_val += split.IsVal(d);
  EXPECT_NEAR(static_cast<double>(num_val), 2000, 200);  // 4.5 standard deviations
}

TEST(ValSplitTest, ASingleDocumentIsCut) {
  ValSplit split(0.1, 0);
  split.Survey({.document = 0, .is_first = true, .is_last = false, .text = std::string(600, 'a')});
  split.Survey({.document = 0, .is_first = false, .is_last = true, .text = std::string(400, 'a')});
  ASSERT_TRUE(split.Finish().ok());
  EXPECT_EQ(split.cut_at_byte(), 900u);
  EXPECT_FALSE(split.IsVal(0));
}

TEST(ValSplitTest, RefusesWhatCannotBeSplit) {
  ValSplit empty(0.1, 0);
  EXPECT_EQ(empty.Finish().code(), StatusCode::kInvalidArgument);
  ValSplit one(0.1, 0);
  EXPECT_EQ(Survey(&one, 1), 1u);
  const Status status = one.Finish();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("1 byte"), std::string::npos) << Message(status);
  ValSplit all(0, 0);
  Survey(&all, 1);
  EXPECT_TRUE(all.Finish().ok());
  EXPECT_FALSE(all.IsVal(0));
}

TEST(TextSampleTest, KeepsASmallCorpusWhole) {
  TextSample sample(100, 1);
  for (const char* text : {"b", "a", "", "c"}) sample.Add(text);
  EXPECT_EQ(sample.texts(), (std::vector<std::string>{"b", "a", "c"}));
}

TEST(TextSampleTest, StaysBelowItsBoundAndTakesFromEverywhere) {
  TextSample sample(10'000, 1);
  for (int i = 0; i < 100'000; ++i) {
    sample.Add(StrFormat("%010d", i));
    ASSERT_LE(sample.num_bytes(), 10'000u);
  }
  EXPECT_GT(sample.num_bytes(), 4'000u);
  int num_early = 0;
  for (const std::string& text : sample.texts()) num_early += text < "0000050000";
  const double share = static_cast<double>(num_early) / static_cast<double>(sample.texts().size());
  EXPECT_NEAR(share, 0.5, 0.1);
}

TEST(TextSampleTest, NeverThinsToNothing) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    TextSample sample(10, seed);
    for (int i = 0; i < 5; ++i) sample.Add("more than ten bytes");
    EXPECT_EQ(sample.texts().size(), 1u);
  }
}

}  // namespace
}  // namespace cria::trainer

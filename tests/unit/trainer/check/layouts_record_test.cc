// Differences in closed form; what a run's folder must have.

#include "trainer/check/layouts_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "tests/support/process.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria::trainer {
namespace {

RunRecord Record() {
  return {.losses = {4, 2},
          .grad_norms = {1, 0.5},
          .gradients = {{"a", {6, 8}}, {"b", {0, 2, 0}}},
          .weights = {{"a", {3, 4}}, {"b", {1, 0, 0}}}};
}

TEST(LayoutsRecordTest, EqualRunsDifferByNothing) {
  const RunDifference difference = Compare(Record(), Record());
  EXPECT_EQ(difference.loss, 0);
  EXPECT_EQ(difference.grad_norm, 0);
  EXPECT_EQ(difference.gradients, 0);
  EXPECT_EQ(difference.weights, 0);
  EXPECT_TRUE(difference.bit_equal);
}

TEST(LayoutsRecordTest, DifferencesAreRelative) {
  RunRecord run = Record();
  run.losses[1] = 2.5;
  run.grad_norms[0] = 0.9;
  run.weights["a"] = {3, 4.5};  // ||(0, 0.5)|| / ||(3, 4)||
  run.weights["b"] = {1, 0, 0.01f};
  run.gradients["b"] = {0, 2, 0.5};  // ||(0, 0, 0.5)|| / ||(0, 2, 0)||
  const RunDifference difference = Compare(run, Record());
  EXPECT_DOUBLE_EQ(difference.loss, 0.25);
  EXPECT_NEAR(difference.grad_norm, 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(difference.weights, 0.1);
  EXPECT_EQ(difference.worst_tensor, "a");
  EXPECT_DOUBLE_EQ(difference.gradients, 0.25);
  EXPECT_EQ(difference.worst_gradient, "b");
  EXPECT_FALSE(difference.bit_equal);
}

TEST(LayoutsRecordTest, OneBitIsSeen) {
  RunRecord run = Record();
  run.weights["a"][0] = std::nextafter(3.0f, 4.0f);
  EXPECT_FALSE(Compare(run, Record()).bit_equal);
  run = Record();
  run.gradients["b"][1] = std::nextafter(2.0f, 4.0f);
  EXPECT_FALSE(Compare(run, Record()).bit_equal);
  run = Record();
  run.weights["b"][1] = -0.0f;
  EXPECT_FALSE(Compare(run, Record()).bit_equal);
  EXPECT_EQ(Compare(run, Record()).weights, 0);
}

TEST(LayoutsRecordTest, WhatIsMissingIsInfinitelyFar) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  RunRecord run = Record();
  run.losses.pop_back();
  run.weights.erase("b");
  run.gradients.erase("a");
  const RunDifference difference = Compare(run, Record());
  EXPECT_EQ(difference.loss, kInfinite);
  EXPECT_EQ(difference.gradients, kInfinite);
  EXPECT_EQ(difference.weights, kInfinite);
  EXPECT_FALSE(difference.bit_equal);
  run = Record();
  run.weights["c"] = {1};  // that nobody asked for
  EXPECT_FALSE(Compare(run, Record()).bit_equal);
  run = Record();
  run.weights["a"] = {3, std::nanf("")};
  EXPECT_EQ(Compare(run, Record()).weights, kInfinite);
}

class RunFolderTest : public testing::Test {
 protected:
  void Write(const std::string& metrics) {
    ASSERT_TRUE(WriteFileAtomic(JoinPath(dir_, "metrics.jsonl"), metrics).ok());
  }
  void Save(int64_t step) {
    const float values[] = {1, 2, 3};
    CheckpointTensors tensors;
    tensors.model.push_back(
        {"w", model::StDtype::kF32, {3}, {reinterpret_cast<const char*>(values), sizeof(values)}});
    const float moments[] = {4, 5, static_cast<float>(step)};
    for (const std::string& name : {ExpAvgName("w"), ExpAvgSqName("w")}) {
      tensors.optimizer.push_back({name,
                                   model::StDtype::kF32,
                                   {3},
                                   {reinterpret_cast<const char*>(moments), sizeof(moments)}});
    }
    CheckpointState state;
    state.step = step;
    ASSERT_TRUE(SaveCheckpoint(JoinPath(dir_, "checkpoints"), state, tensors).ok());
  }

  const std::string dir_ = FreshDir("run");
};

TEST_F(RunFolderTest, IsRead) {
  Write("{\"step\":1,\"loss\":5.5,\"grad_norm\":2}\n{\"step\":2,\"loss\":5,\"grad_norm\":1.5}\n");
  Save(1);
  Save(2);
  const auto record = ReadRunRecord(dir_, 2);
  ASSERT_TRUE(record.ok()) << Message(record.status());
  EXPECT_EQ(record->losses, (std::vector<double>{5.5, 5}));
  EXPECT_EQ(record->grad_norms, (std::vector<double>{2, 1.5}));
  EXPECT_EQ(record->weights.at("w"), (std::vector<float>{1, 2, 3}));
  ASSERT_EQ(record->gradients.size(), 1U);
  EXPECT_EQ(record->gradients.at("w"), (std::vector<float>{4, 5, 1}));
}

TEST_F(RunFolderTest, TooFewStepsOrNoNumberIsAnError) {
  Write("{\"step\":1,\"loss\":5.5,\"grad_norm\":2}\n");
  Save(1);
  EXPECT_EQ(ReadRunRecord(dir_, 2).status().code(), StatusCode::kDataLoss);
  Write("{\"step\":1,\"loss\":null,\"grad_norm\":2}\n");
  EXPECT_EQ(ReadRunRecord(dir_, 1).status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace cria::trainer

#include "comm/api/operation.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace cria::comm {
namespace {

constexpr int kSize = 4;

std::string Refusal(const Operation& operation, int rank = 0) {
  return std::string(ValidateOperation(operation, rank, kSize).message());
}

TEST(OperationTest, CountsElementsByKind) {
  std::array<float, 64> buffer;
  Operation operation{.input = buffer.data(), .output = buffer.data(), .count = 3};
  const auto elements = [&operation](OpKind kind, int rank) {
    operation.kind = kind;
    operation.root_or_peer = 1;
    return std::pair(InputElements(operation, rank, kSize), OutputElements(operation, rank, kSize));
  };
  EXPECT_EQ(elements(OpKind::kAllReduce, 0), std::pair(int64_t{3}, int64_t{3}));
  EXPECT_EQ(elements(OpKind::kReduce, 0), std::pair(int64_t{3}, int64_t{0}));
  EXPECT_EQ(elements(OpKind::kReduce, 1), std::pair(int64_t{3}, int64_t{3}));
  EXPECT_EQ(elements(OpKind::kBroadcast, 0), std::pair(int64_t{0}, int64_t{3}));
  EXPECT_EQ(elements(OpKind::kAllGather, 0), std::pair(int64_t{3}, int64_t{12}));
  EXPECT_EQ(elements(OpKind::kReduceScatter, 0), std::pair(int64_t{12}, int64_t{3}));
  EXPECT_EQ(elements(OpKind::kScatter, 1), std::pair(int64_t{12}, int64_t{3}));
  EXPECT_EQ(elements(OpKind::kGather, 0), std::pair(int64_t{3}, int64_t{0}));
  EXPECT_EQ(elements(OpKind::kBarrier, 0), std::pair(int64_t{0}, int64_t{0}));
}

TEST(OperationTest, DisplacementsExtendTheBuffer) {
  const std::array<int64_t, 4> counts = {1, 0, 2, 3};
  const std::array<int64_t, 4> places = {10, 99, 0, 4};
  Operation operation{.kind = OpKind::kAllGatherV, .recv_counts = counts};
  EXPECT_EQ(OutputElements(operation, 0, kSize), 6);
  EXPECT_EQ(InputElements(operation, 2, kSize), 2);
  operation.recv_displacements = places;
  EXPECT_EQ(OutputElements(operation, 0, kSize), 11);  // the part of no elements counts for nothing
}

TEST(OperationTest, RefusesWhatIsWrongOnThisRank) {
  std::array<float, 64> buffer;
  Operation operation{
      .kind = OpKind::kAllReduce, .input = buffer.data(), .output = buffer.data(), .count = -1};
  EXPECT_NE(Refusal(operation).find("count is -1"), std::string::npos);
  operation.count = std::numeric_limits<int64_t>::max() / 8;
  EXPECT_NE(Refusal(operation).find("above 2^62 bytes"), std::string::npos);
  operation.count = 4;
  EXPECT_EQ(Refusal(operation), "");
  operation.dtype = DataType::kFloat8E4M3;
  EXPECT_NE(Refusal(operation).find("float8_e4m3 only travels"), std::string::npos);
  operation.dtype = DataType::kFloat32;
  operation.output = nullptr;
  EXPECT_NE(Refusal(operation).find("the output is null for 4 elements"), std::string::npos);
  operation.output = buffer.data();
  operation.kind = OpKind::kReduce;
  operation.root_or_peer = 4;
  EXPECT_NE(Refusal(operation).find("root is 4 of 4 ranks"), std::string::npos);
}

TEST(OperationTest, RefusesWrongCounts) {
  std::array<float, 64> buffer;
  const std::array<int64_t, 3> few = {1, 1, 1};
  const std::array<int64_t, 4> negative = {1, -1, 1, 1};
  const std::array<int64_t, 4> counts = {1, 2, 1, 1};
  const std::array<int64_t, 4> overlapping = {0, 5, 6, 8};
  Operation operation{.kind = OpKind::kAllGatherV,
                      .input = buffer.data(),
                      .output = buffer.data() + 32,
                      .recv_counts = few};
  EXPECT_NE(Refusal(operation).find("recv_counts has 3 entries for 4 ranks"), std::string::npos);
  operation.recv_counts = negative;
  EXPECT_NE(Refusal(operation).find("recv_counts[1] is -1"), std::string::npos);
  operation.recv_counts = counts;
  operation.recv_displacements = overlapping;
  EXPECT_NE(Refusal(operation).find("the parts of ranks 1 and 2 overlap"), std::string::npos);
}

TEST(OperationTest, CountsWhoseSumOverflowsAreRefused) {
  std::array<float, 4> buffer;
  const int64_t half = int64_t{1} << 59;
  const std::array<int64_t, 4> counts = {half, half, half, 1};
  const Operation operation{.kind = OpKind::kReduceScatterV,
                            .input = buffer.data(),
                            .output = buffer.data(),
                            .send_counts = counts};
  EXPECT_NE(Refusal(operation).find("send_counts[2]"), std::string::npos);
}

TEST(OperationTest, InPlaceIsEqualOrTheOwnPart) {
  std::array<float, 64> buffer;
  Operation operation{
      .kind = OpKind::kAllGather, .input = &buffer[6], .output = buffer.data(), .count = 3};
  EXPECT_EQ(Refusal(operation, 2), "");
  EXPECT_TRUE(InPlace(operation, 2));
  EXPECT_NE(Refusal(operation, 1).find("overlap in part"), std::string::npos);
  operation = {
      .kind = OpKind::kReduceScatter, .input = buffer.data(), .output = &buffer[9], .count = 3};
  EXPECT_EQ(Refusal(operation, 3), "");
  EXPECT_NE(Refusal(operation, 0).find("overlap in part"), std::string::npos);
  operation = {
      .kind = OpKind::kAllReduce, .input = buffer.data(), .output = &buffer[1], .count = 3};
  EXPECT_NE(Refusal(operation).find("overlap in part"), std::string::npos);
  operation.output = &buffer[3];
  EXPECT_EQ(Refusal(operation), "");
}

TEST(OperationTest, AnOwnedCopyOutlivesTheCountsOfItsCaller) {
  std::array<int64_t, 4> counts = {1, 2, 3, 4};
  std::array<int64_t, 4> places = {0, 10, 20, 30};
  const OwnedOperation owned(
      {.kind = OpKind::kAllToAllV, .send_counts = counts, .recv_displacements = places});
  counts.fill(0);
  places.fill(0);
  EXPECT_EQ(owned.operation.send_counts[3], 4);
  EXPECT_TRUE(owned.operation.recv_counts.empty());
  EXPECT_TRUE(owned.operation.send_displacements.empty());
  EXPECT_EQ(owned.operation.recv_displacements[1], 10);
}

}  // namespace
}  // namespace cria::comm

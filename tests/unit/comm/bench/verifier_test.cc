#include "comm/bench/verifier.h"

#include <gtest/gtest.h>

#include <cstring>

#include "comm/bench/verifier_values.h"

namespace cria::comm {
namespace {

// What the collective must give, from the table in api/operation.h, element by element: the oracle
// of the verifier's segments and patterns. -1 for the combination of all ranks.
struct Origin {
  int rank = -1;
  int64_t index = 0;
};

int64_t PartCountOf(const std::vector<int64_t>& counts, int rank) {
  return counts[static_cast<size_t>(rank)];
}

std::vector<Origin> Expected(const CollectiveShape& shape, int rank, int size) {
  std::vector<Origin> out;
  const auto add = [&out](int from, int64_t start, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out.push_back({from, start + i});
  };
  const int64_t n = shape.count;
  switch (shape.kind) {
    case OpKind::kAllReduce:
      add(-1, 0, n);
      break;
    case OpKind::kReduce:
      if (rank == shape.root) add(-1, 0, n);
      break;
    case OpKind::kBroadcast:
      if (rank != shape.root) add(shape.root, 0, n);
      break;
    case OpKind::kAllGather:
      for (int r = 0; r < size; ++r) add(r, 0, n);
      break;
    case OpKind::kReduceScatter:
      add(-1, rank * n, n);
      break;
    case OpKind::kAllToAll:
      for (int r = 0; r < size; ++r) add(r, rank * n, n);
      break;
    case OpKind::kGather:
      for (int r = 0; r < size && rank == shape.root; ++r) add(r, 0, n);
      break;
    case OpKind::kScatter:
      add(shape.root, rank * n, n);
      break;
    case OpKind::kAllGatherV:
      for (int r = 0; r < size; ++r) {
        add(r, 0, PartCountOf(Verifier(shape, rank, size).recv_counts(), r));
      }
      break;
    case OpKind::kAllToAllV:
      for (int r = 0; r < size; ++r) {
        const Verifier sender(shape, r, size);
        int64_t start = 0;
        for (int before = 0; before < rank; ++before) {
          start += PartCountOf(sender.send_counts(), before);
        }
        add(r, start, PartCountOf(sender.send_counts(), rank));
      }
      break;
    case OpKind::kReduceScatterV: {
      const Verifier own(shape, rank, size);
      int64_t start = 0;
      for (int before = 0; before < rank; ++before) start += PartCountOf(own.send_counts(), before);
      add(-1, start, PartCountOf(own.send_counts(), rank));
      break;
    }
    case OpKind::kSend:
      add((rank + size - 1) % size, 0, n);
      break;
    default:
      break;
  }
  return out;
}

class VerifierTest : public testing::TestWithParam<OpKind> {};

TEST_P(VerifierTest, TakesExactlyWhatTheOperationGives) {
  for (const int size : {1, 2, 3, 5}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, Verifier::kPeriod + 3}) {
      const CollectiveShape shape = {
          .kind = GetParam(), .dtype = DataType::kInt16, .count = count, .root = size - 1};
      const ValueSpec spec = {.dtype = shape.dtype, .op = shape.op, .size = size};
      const int rank = size / 2;
      const Verifier verifier(shape, rank, size);
      const std::vector<Origin> expected = Expected(shape, rank, size);
      ASSERT_EQ(static_cast<int64_t>(expected.size()), verifier.output_elements());
      if (expected.empty()) continue;
      std::vector<std::byte> output(expected.size() * 2);
      for (size_t i = 0; i < expected.size(); ++i) {
        const int64_t index = expected[i].index % Verifier::kPeriod;
        if (expected[i].rank < 0) {
          WriteCombined(spec, index, &output[2 * i]);
        } else {
          WriteValue(spec, expected[i].rank, index, &output[2 * i]);
        }
      }
      EXPECT_EQ(verifier.CountWrong(output.data()), 0) << count << " elements of " << size;
      for (const size_t at : {size_t{0}, output.size() / 2, output.size() - 1}) {
        output[at] ^= std::byte{0x40};
        EXPECT_EQ(verifier.CountWrong(output.data()), 1) << "byte " << at;
        output[at] ^= std::byte{0x40};
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, VerifierTest,
                         testing::Values(OpKind::kAllReduce, OpKind::kReduce, OpKind::kBroadcast,
                                         OpKind::kAllGather, OpKind::kAllGatherV,
                                         OpKind::kReduceScatter, OpKind::kReduceScatterV,
                                         OpKind::kAllToAll, OpKind::kAllToAllV, OpKind::kGather,
                                         OpKind::kScatter, OpKind::kSend),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(VerifierTest, SeesAPartOfAnotherRankOrPlace) {
  const CollectiveShape shape = {.kind = OpKind::kAllGather, .count = 1000};
  const Verifier zero(shape, 0, 2);
  const Verifier one(shape, 1, 2);
  std::vector<float> output(2000);
  zero.FillInput(output.data());
  one.FillInput(output.data() + 1000);
  EXPECT_EQ(zero.CountWrong(output.data()), 0);
  // Rank 0's part twice: nearly all of the second part is wrong (values meet by chance).
  zero.FillInput(output.data() + 1000);
  EXPECT_GT(zero.CountWrong(output.data()), 800);
  // One element too far.
  one.FillInput(output.data() + 1000);
  std::memmove(output.data() + 1, output.data(), 999 * sizeof(float));
  EXPECT_GT(zero.CountWrong(output.data()), 800);
}

TEST(VerifierTest, CountsAbove4GibInWindows) {
  constexpr int64_t kCount = (int64_t{1} << 32) + 1000;
  const CollectiveShape shape = {
      .kind = OpKind::kAllGather, .dtype = DataType::kInt8, .count = kCount};
  const Verifier verifier(shape, 0, 3);
  const ValueSpec spec = {.dtype = DataType::kInt8, .op = ReduceOp::kSum, .size = 3};
  // Across the border of the parts of ranks 1 and 2.
  constexpr int64_t kFirst = 2 * kCount - 500;
  std::vector<std::byte> window(1000);
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t at = kFirst + i;
    const int rank = static_cast<int>(at / kCount);
    WriteValue(spec, rank, at % kCount % Verifier::kPeriod, &window[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(verifier.CountWrong(window.data(), kFirst, 1000), 0);
  window[499] ^= std::byte{1};
  window[500] ^= std::byte{1};
  EXPECT_EQ(verifier.CountWrong(window.data(), kFirst, 1000), 2);
  EXPECT_EQ(verifier.CountWrong(window.data(), kFirst, 500), 1);
  // 2^32 elements earlier there is something else.
  window[499] ^= std::byte{1};
  window[500] ^= std::byte{1};
  EXPECT_GT(verifier.CountWrong(window.data(), kFirst - (int64_t{1} << 32), 1000), 500);
}

TEST(VerifierTest, SeesAChangedInput) {
  const Verifier verifier({.kind = OpKind::kAllReduce, .count = 70000}, 1, 2);
  std::vector<float> input(70000);
  verifier.FillInput(input.data());
  EXPECT_EQ(verifier.CountInputChanged(input.data()), 0);
  input[69999] += 1;
  EXPECT_EQ(verifier.CountInputChanged(input.data()), 1);
}

TEST(VerifierTest, ValuesAreExactInAnyOrder) {
  // Partial sums of all 64 ranks stay among the integers that each type holds exactly.
  for (const DataType dtype : {DataType::kBfloat16, DataType::kFloat16, DataType::kFloat32}) {
    const ValueSpec spec = {.dtype = dtype, .op = ReduceOp::kSum, .size = 64};
    for (int64_t index = 0; index < 200; ++index) {
      std::byte sum[4];
      WriteCombined(spec, index, sum);
      float value = 0;
      if (dtype == DataType::kFloat32) {
        std::memcpy(&value, sum, 4);
        EXPECT_LE(std::abs(value), 256);
        EXPECT_EQ(value, static_cast<float>(static_cast<int>(value)));
      }
    }
  }
}

TEST(VerifierTest, RoundsToNearestEven) {
  EXPECT_EQ(BfloatBits(1.0F), 0x3f80);
  EXPECT_EQ(BfloatBits(1.00390625F), 0x3f80);  // half a step: to even
  EXPECT_EQ(BfloatBits(1.01171875F), 0x3f82);  // three halves: to even
  EXPECT_EQ(HalfBits(1.0F), 0x3c00);
  EXPECT_EQ(HalfBits(-2.5F), 0xc100);
  EXPECT_EQ(HalfBits(1.00048828125F), 0x3c00);
  EXPECT_EQ(HalfBits(1.00146484375F), 0x3c02);
  EXPECT_EQ(HalfBits(0.0F), 0);
}

}  // namespace
}  // namespace cria::comm

// Plans run by ranks that are threads: every kind, at sizes and places that have broken others.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/str.h"
#include "comm/plan/interpreter.h"
#include "comm/shm/shm_domain.h"
#include "tests/unit/comm/shm/shm_ranks.h"

namespace cria::comm {
namespace {

enum class Memory { kPrivate, kShared, kMixed };

struct Case {
  OpKind kind = OpKind::kAllReduce;
  Algorithm algorithm = Algorithm::kFlat;
  int size = 2;
  int64_t count = 1;
  DataType dtype = DataType::kFloat32;
  Memory memory = Memory::kPrivate;
  bool in_place = false;
  int offset_bytes = 0;

  std::string Describe() const {
    return StrCat(Name(kind), " ", Name(algorithm), " of ", size, " ranks, ", count, " ",
                  Name(dtype), ", memory ", static_cast<int>(memory), in_place ? " in place" : "",
                  ", offset ", offset_bytes);
  }
};

// Small integers that differ by rank and position: sums of 8 ranks are exact in every type.
int ValueAt(int rank, int64_t element) {
  return static_cast<int>((element * 7 + rank * 3 + element / 5) % 13);
}

void StoreValue(DataType dtype, int value, std::byte* to) {
  const auto f32 = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f32, 4);
  if (dtype == DataType::kFloat32) {
    std::memcpy(to, &bits, 4);
  } else if (dtype == DataType::kBfloat16) {
    std::memcpy(to, reinterpret_cast<const std::byte*>(&bits) + 2, 2);  // exact
  } else {
    const int64_t wide = value;
    std::memcpy(to, &wide, static_cast<size_t>(ByteSize(dtype)));
  }
}

// A buffer between guards, private or of the segment.
class Buffer {
 public:
  Buffer(ShmRank& rank, int64_t bytes, bool shared, int offset_bytes) : bytes_(bytes) {
    const int64_t total = bytes + 128 + offset_bytes;
    if (shared) {
      auto buffer = rank.domain().Allocate(total);
      EXPECT_TRUE(buffer.ok()) << Message(buffer.status());
      shared_ = *std::move(buffer);
      start_ = static_cast<std::byte*>(shared_->data());
    } else {
      private_.resize(static_cast<size_t>(total));
      start_ = private_.data();
    }
    std::memset(start_, 0xA5, static_cast<size_t>(total));
    total_ = total;
    offset_ = 64 + offset_bytes;
  }
  std::byte* data() { return start_ + offset_; }
  bool GuardsHold() const {
    for (int64_t i = 0; i < total_; ++i) {
      if (i >= offset_ && i < offset_ + bytes_) continue;
      if (start_[i] != std::byte{0xA5}) return false;
    }
    return true;
  }

 private:
  std::unique_ptr<SharedBuffer> shared_;
  std::vector<std::byte> private_;
  std::byte* start_ = nullptr;
  int64_t bytes_ = 0;
  int64_t total_ = 0;
  int64_t offset_ = 0;
};

std::string RunCase(ShmRank& rank, const Case& c) {
  GroupTopology topology;
  topology.host_of_rank.assign(static_cast<size_t>(c.size), 0);
  PlanRequest request = {.kind = c.kind,
                         .dtype = c.dtype,
                         .reduce_op = ReduceOp::kSum,
                         .count = c.count,
                         .root = c.size / 2,
                         .topology = &topology,
                         .rank = rank.rank()};
  const InterpreterJob job = JobOf(request, c.in_place);
  const InterpreterJob::Buffers& sizes = job.buffers[static_cast<size_t>(rank.rank())];
  const int64_t bytes = ByteSize(c.dtype);
  const bool in_shared =
      c.memory == Memory::kShared || (c.memory == Memory::kMixed && rank.rank() % 2 == 0);
  const bool out_shared =
      c.memory == Memory::kShared || (c.memory == Memory::kMixed && rank.rank() % 3 != 0);
  const int64_t shift = sizes.output_at.value_or(0);
  // In place, one buffer holds both, wherever they start.
  const int64_t input_at = sizes.output_at ? std::max<int64_t>(0, -shift) : 0;
  const int64_t output_at = sizes.output_at ? input_at + shift : 0;
  const int64_t whole = std::max(input_at + sizes.input_elements,
                                 sizes.output_at ? output_at + sizes.output_elements : 0);
  Buffer input(rank, whole * bytes, in_shared, c.offset_bytes);
  Buffer separate(rank, sizes.output_elements * bytes, out_shared, c.offset_bytes * 3 % 64);
  std::byte* in = input.data() + input_at * bytes;
  std::byte* out = sizes.output_at ? input.data() + output_at * bytes : separate.data();
  for (int64_t i = 0; i < sizes.input_elements; ++i) {
    StoreValue(c.dtype, ValueAt(rank.rank(), i), in + i * bytes);
  }
  const std::vector<std::byte> before(out, out + sizes.output_elements * bytes);
  const Status status =
      rank.Collective(request, c.algorithm, in, out, 60, c.memory == Memory::kPrivate);
  if (!status.ok()) return Message(status);
  for (int64_t i = 0; i < sizes.output_elements; ++i) {
    const InterpreterJob::Expected expected = job.expected(rank.rank(), i);
    std::array<std::byte, 8> want;
    std::memcpy(want.data(), before.data() + i * bytes, static_cast<size_t>(bytes));
    if (expected.written) {
      int value = 0;
      for (int r = 0; r < c.size; ++r) {
        if (expected.source < 0 || expected.source == r) value += ValueAt(r, expected.element);
      }
      StoreValue(c.dtype, value, want.data());
    }
    if (std::memcmp(want.data(), out + i * bytes, static_cast<size_t>(bytes)) != 0) {
      return StrCat("element ", i, " is wrong");
    }
  }
  if (!input.GuardsHold() || !separate.GuardsHold()) return "bytes around a buffer were written";
  if (sizes.output_at) return "";
  for (int64_t i = 0; i < sizes.input_elements; ++i) {
    std::array<std::byte, 8> want;
    StoreValue(c.dtype, ValueAt(rank.rank(), i), want.data());
    if (std::memcmp(want.data(), in + i * bytes, static_cast<size_t>(bytes)) != 0) {
      return StrCat("input element ", i, " was overwritten");
    }
  }
  return "";
}

class ShmTransportTest : public testing::TestWithParam<int> {};

constexpr OpKind kKinds[] = {OpKind::kAllReduce, OpKind::kReduce,        OpKind::kBroadcast,
                             OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kGather,
                             OpKind::kScatter};

TEST_P(ShmTransportTest, FlatPlansGiveTheirResults) {
  const int size = GetParam();
  RunShmThreads(size, [size](ShmRank& rank) {
    for (const OpKind kind : kKinds) {
      for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed}) {
        for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt8}) {
          for (const int64_t count : {1, 2, 3, 7, 17, 300, 9000}) {
            if (size == 8 && count > 3 && count % 2 == 1) continue;
            for (const bool in_place : {false, true}) {
              const Case c = {.kind = kind,
                              .size = size,
                              .count = count,
                              .dtype = dtype,
                              .memory = memory,
                              .in_place = in_place,
                              .offset_bytes = static_cast<int>(count % 64)};
              const std::string wrong = RunCase(rank, c);
              ASSERT_EQ(wrong, "") << "rank " << rank.rank() << ": " << c.Describe();
            }
          }
        }
      }
    }
  });
}

// Through windows, several tiles long, where some rank's memory is private.
TEST_P(ShmTransportTest, LargeFlatPlansGiveTheirResults) {
  const int size = GetParam();
  // Ranks that take turns have tiles of 512 KiB, others of 128 KiB.
  const int64_t count = size == 3 ? 450'007 : size == 8 ? 20'011 : 150'007;
  RunShmThreads(size, [size, count](ShmRank& rank) {
    for (const OpKind kind : kKinds) {
      for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed}) {
        for (const bool in_place : {false, true}) {
          const Case c = {.kind = kind,
                          .size = size,
                          .count = count,
                          .dtype = in_place ? DataType::kBfloat16 : DataType::kFloat32,
                          .memory = memory,
                          .in_place = in_place,
                          .offset_bytes = 2};
          const std::string wrong = RunCase(rank, c);
          ASSERT_EQ(wrong, "") << "rank " << rank.rank() << ": " << c.Describe();
        }
      }
    }
  });
}

TEST_P(ShmTransportTest, PlansOfSeveralRoundsGiveTheirResults) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "one rank has no rounds";
  RunShmThreads(size, [size](ShmRank& rank) {
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter}) {
      for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed}) {
        for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
          for (const int64_t count : {1, 5, 17, 5000}) {
            for (const bool in_place : {false, true}) {
              const Case c = {.kind = kind,
                              .algorithm = Algorithm::kRing,
                              .size = size,
                              .count = count,
                              .dtype = dtype,
                              .memory = memory,
                              .in_place = in_place};
              const std::string wrong = RunCase(rank, c);
              ASSERT_EQ(wrong, "") << "rank " << rank.rank() << ": " << c.Describe();
            }
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmTransportTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace cria::comm

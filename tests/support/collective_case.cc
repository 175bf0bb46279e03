#include "tests/support/collective_case.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/str.h"
#include "model/io/half.h"

namespace cria {
namespace {

using comm::DataType;
using comm::OpKind;
using comm::ReduceOp;

constexpr std::byte kUntouched{0xA5};
constexpr int64_t kGuardBytes = 64;

// What `rank` puts at `index`: small, and different for neighbours of either kind.
int64_t Value(const CollectiveCase& test, int rank, int64_t index) {
  const int64_t mix = index * 3 + index / 7 + rank * 5 + rank * index;
  if (test.op == ReduceOp::kProd) return 1 + (mix & 1);
  return mix % 5 - (comm::Reduces(test.kind) && test.dtype != DataType::kUint8 ? 2 : 0);
}

template <typename T>
void Store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

void Encode(DataType dtype, double value, std::byte* to) {
  switch (dtype) {
    case DataType::kFloat32:
      return Store(to, static_cast<float>(value));
    case DataType::kBfloat16:
      return Store(to, model::Bf16FromFloat(static_cast<float>(value)));
    case DataType::kFloat16:
      return Store(to, model::HalfFromFloat(static_cast<float>(value)));
    case DataType::kInt16:
      return Store(to, static_cast<int16_t>(static_cast<int64_t>(value)));
    case DataType::kInt32:
      return Store(to, static_cast<int32_t>(static_cast<int64_t>(value)));
    case DataType::kInt64:
      return Store(to, static_cast<int64_t>(value));
    default:
      return Store(to, static_cast<uint8_t>(static_cast<int64_t>(value)));
  }
}

bool IsFloat(DataType dtype) {
  return dtype == DataType::kFloat32 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat16;
}

// The reduction over all ranks at an index of their inputs.
double Reduced(const CollectiveCase& test, int size, int64_t index) {
  int64_t result = Value(test, 0, index);
  for (int rank = 1; rank < size; ++rank) {
    const int64_t value = Value(test, rank, index);
    switch (test.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result += value;
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kProd:
        result *= value;
        break;
    }
  }
  if (test.op != ReduceOp::kAvg) return static_cast<double>(result);
  if (!IsFloat(test.dtype)) return static_cast<double>(result / size);
  return static_cast<double>(static_cast<float>(result) / static_cast<float>(size));
}

// Buffers with guards around them, private or shared.
class Buffer {
 public:
  Buffer(comm::Communicator& comm, const CollectiveCase& test, int64_t bytes) : bytes_(bytes) {
    const int64_t total = bytes + 2 * kGuardBytes + test.offset_bytes;
    if (test.shared) {
      auto shared = comm.Allocate(total);
      if (shared.ok()) shared_ = std::move(*shared);
    }
    if (shared_ == nullptr) own_.resize(static_cast<size_t>(total));
    start_ = (shared_ ? static_cast<std::byte*>(shared_->data()) : own_.data());
    total_ = total;
    data_ = start_ + kGuardBytes + test.offset_bytes;
    std::fill(start_, start_ + total_, kUntouched);
  }
  std::byte* data() { return data_; }
  int64_t bytes() const { return bytes_; }

  // The first byte around the data that was written, relative to the data; 0 when none was.
  int64_t BrokenGuard() const {
    for (const std::byte* at = start_; at < start_ + total_; ++at) {
      if ((at < data_ || at >= data_ + bytes_) && *at != kUntouched) {
        return at < data_ ? at - data_ : at - data_ + 1;
      }
    }
    return 0;
  }

 private:
  const int64_t bytes_;
  std::unique_ptr<comm::SharedBuffer> shared_;
  std::vector<std::byte> own_;
  std::byte* start_;
  std::byte* data_;
  int64_t total_;
};

// The parts of a V kind: rank r gives count + r elements, every third rank none.
std::vector<int64_t> Parts(const CollectiveCase& test, int size) {
  std::vector<int64_t> parts;
  for (int r = 0; r < size; ++r) parts.push_back(r % 3 == 1 ? 0 : test.count + r);
  return parts;
}

// all_to_all_v: what `from` sends to `to`.
int64_t PairCount(const CollectiveCase& test, int from, int to) {
  return (from + to) % 3 == 1 ? 0 : test.count + from + 2 * to;
}

std::vector<int64_t> PairCounts(const CollectiveCase& test, int rank, int size, bool sends) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) {
    counts.push_back(sends ? PairCount(test, rank, r) : PairCount(test, r, rank));
  }
  return counts;
}

int64_t Sum(const std::vector<int64_t>& counts, size_t end) {
  int64_t sum = 0;
  for (size_t i = 0; i < end; ++i) sum += counts[i];
  return sum;
}

struct Shape {
  int64_t input = 0;
  int64_t output = 0;
  int64_t own_part = 0;  // in place: where the small buffer lies in the large one
};

Shape ShapeOf(const CollectiveCase& test, int rank, int size) {
  const bool root = rank == test.root;
  const int64_t n = test.count;
  const std::vector<int64_t> parts = Parts(test, size);
  const auto r = static_cast<size_t>(rank);
  switch (test.kind) {
    case OpKind::kAllReduce:
      return {n, n, 0};
    case OpKind::kReduce:
      return {n, n, 0};
    case OpKind::kBroadcast:
      return {n, n, 0};
    case OpKind::kAllGather:
      return {n, n * size, n * rank};
    case OpKind::kAllGatherV:
      return {parts[r], Sum(parts, parts.size()), Sum(parts, r)};
    case OpKind::kReduceScatter:
      return {n * size, n, n * rank};
    case OpKind::kReduceScatterV:
      return {Sum(parts, parts.size()), parts[r], Sum(parts, r)};
    case OpKind::kAllToAll:
      return {n * size, n * size, 0};
    case OpKind::kAllToAllV:
      return {Sum(PairCounts(test, rank, size, true), static_cast<size_t>(size)),
              Sum(PairCounts(test, rank, size, false), static_cast<size_t>(size)), 0};
    case OpKind::kGather:
      return {n, n * size, root ? n * rank : 0};
    case OpKind::kScatter:
      return {n * size, n, root ? n * rank : 0};
    default:
      return {};
  }
}

// What must stand at `index` of the output; nothing where the output must be untouched.
double Expected(const CollectiveCase& test, int rank, int size, int64_t index) {
  switch (test.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      return Reduced(test, size, index);
    case OpKind::kBroadcast:
      return static_cast<double>(Value(test, test.root, index));
    case OpKind::kReduceScatter:
      return Reduced(test, size, test.count * rank + index);
    case OpKind::kReduceScatterV:
      return Reduced(test, size, Sum(Parts(test, size), static_cast<size_t>(rank)) + index);
    case OpKind::kAllGather:
    case OpKind::kGather:
      return static_cast<double>(
          Value(test, static_cast<int>(index / test.count), index % test.count));
    case OpKind::kScatter:
      return static_cast<double>(Value(test, test.root, test.count * rank + index));
    case OpKind::kAllToAll:
      return static_cast<double>(Value(test, static_cast<int>(index / test.count),
                                       test.count * rank + index % test.count));
    case OpKind::kAllGatherV: {
      const std::vector<int64_t> parts = Parts(test, size);
      size_t part = 0;
      for (; index >= parts[part]; ++part) index -= parts[part];
      return static_cast<double>(Value(test, static_cast<int>(part), index));
    }
    case OpKind::kAllToAllV: {
      int from = 0;
      for (; index >= PairCount(test, from, rank); ++from) index -= PairCount(test, from, rank);
      const std::vector<int64_t> sends = PairCounts(test, from, size, true);
      return static_cast<double>(Value(test, from, Sum(sends, static_cast<size_t>(rank)) + index));
    }
    default:
      return 0;
  }
}

comm::Work Call(comm::Communicator& comm, const CollectiveCase& test, const std::byte* in,
                std::byte* out) {
  const int64_t n = test.count;
  const std::vector<int64_t> parts = Parts(test, comm.size());
  switch (test.kind) {
    case OpKind::kAllReduce:
      return comm.AllReduce({in, out, n, test.dtype, test.op, test.call});
    case OpKind::kReduce:
      return comm.Reduce({in, out, n, test.dtype, test.op, test.root, test.call});
    case OpKind::kBroadcast:
      return comm.Broadcast({out, n, test.dtype, test.root, test.call});
    case OpKind::kAllGather:
      return comm.AllGather({in, out, n, test.dtype, test.call});
    case OpKind::kAllGatherV:
      return comm.AllGatherV({in, out, parts, {}, test.dtype, test.call});
    case OpKind::kReduceScatter:
      return comm.ReduceScatter({in, out, n, test.dtype, test.op, test.call});
    case OpKind::kReduceScatterV:
      return comm.ReduceScatterV({in, out, parts, test.dtype, test.op, test.call});
    case OpKind::kAllToAll:
      return comm.AllToAll({in, out, n, test.dtype, test.call});
    case OpKind::kAllToAllV: {
      const auto sends = PairCounts(test, comm.rank(), comm.size(), true);
      const auto recvs = PairCounts(test, comm.rank(), comm.size(), false);
      return comm.AllToAllV({in, out, sends, recvs, {}, {}, test.dtype, test.call});
    }
    case OpKind::kGather:
      return comm.Gather({in, out, n, test.dtype, test.root, test.call});
    case OpKind::kScatter:
      return comm.Scatter({in, out, n, test.dtype, test.root, test.call});
    default:
      return comm.Barrier({test.call});
  }
}

bool HasOutput(const CollectiveCase& test, int rank) {
  return (test.kind != OpKind::kReduce && test.kind != OpKind::kGather) || rank == test.root;
}

bool HasInput(const CollectiveCase& test, int rank) {
  return (test.kind != OpKind::kBroadcast && test.kind != OpKind::kScatter) || rank == test.root;
}

}  // namespace

std::string Describe(const CollectiveCase& test) {
  return StrCat(comm::Name(test.kind), " ", comm::Name(test.dtype), " ", comm::Name(test.op),
                " count ", test.count, " root ", test.root, test.in_place ? " in place" : "",
                test.shared ? " shared" : "", test.call.async ? " async" : "", " offset ",
                test.offset_bytes);
}

std::string CheckCollective(comm::Communicator& comm, const CollectiveCase& test) {
  const int rank = comm.rank(), size = comm.size();
  const int64_t bytes = comm::ByteSize(test.dtype);
  const Shape shape = ShapeOf(test, rank, size);
  // In place, the input lies in the output or the other way round; a broadcast always does.
  const bool one_buffer = test.kind == OpKind::kBroadcast ||
                          (test.in_place && HasInput(test, rank) && HasOutput(test, rank));
  const bool input_is_large = shape.input > shape.output;
  Buffer in(comm, test, shape.input * bytes);
  Buffer out(comm, test, shape.output * bytes);
  std::byte* input = in.data();
  std::byte* output = out.data();
  if (one_buffer && input_is_large) output = in.data() + shape.own_part * bytes;
  if (one_buffer && !input_is_large) input = out.data() + shape.own_part * bytes;
  if (HasInput(test, rank)) {
    for (int64_t i = 0; i < shape.input; ++i) {
      Encode(test.dtype, static_cast<double>(Value(test, rank, i)), input + i * bytes);
    }
  }
  const std::vector<std::byte> before(in.data(), in.data() + in.bytes());
  const comm::Work work = Call(comm, test, input, output);
  if (const Status status = work.Wait(); !status.ok()) return Message(status);

  const std::string where = StrCat("rank ", rank, " of ", size, ": ", Describe(test), ": ");
  std::vector<std::byte> expected(static_cast<size_t>(bytes), kUntouched);
  for (int64_t i = 0; i < shape.output; ++i) {
    if (HasOutput(test, rank)) Encode(test.dtype, Expected(test, rank, size, i), expected.data());
    if (std::memcmp(output + i * bytes, expected.data(), static_cast<size_t>(bytes)) != 0) {
      return StrCat(where, "output[", i, "] of ", shape.output, " is wrong");
    }
  }
  if (!one_buffer && std::memcmp(in.data(), before.data(), static_cast<size_t>(in.bytes())) != 0) {
    return StrCat(where, "the input was changed");
  }
  if (const int64_t at = in.BrokenGuard() + out.BrokenGuard(); at != 0) {
    return StrCat(where, "byte ", at, " around a buffer was changed");
  }
  return "";
}

}  // namespace cria

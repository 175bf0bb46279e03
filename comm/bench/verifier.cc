#include "comm/bench/verifier.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "comm/bench/verifier_values.h"

namespace cria::comm {
namespace {

std::byte* At(void* p, int64_t offset) { return static_cast<std::byte*>(p) + offset; }
const std::byte* At(const void* p, int64_t offset) {
  return static_cast<const std::byte*>(p) + offset;
}

int64_t Sum(const std::vector<int64_t>& counts, size_t parts) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(parts),
                         int64_t{0});
}

// Part of `index`: of every three, one is whole, one half, one empty.
int64_t PartCount(int64_t count, int index) {
  const int third = index % 3;
  return third == 0 ? count : third == 1 ? count / 2 : 0;
}

// Calls visit(bytes at, pattern offset in bytes, length in bytes) for the stretches of the pattern
// that `count` elements from pattern index `start` cover.
template <typename Visit>
void ForStretches(int64_t count, int64_t start, int64_t period, int64_t element_bytes,
                  const Visit& visit) {
  int64_t at = 0;
  while (at < count) {
    const int64_t phase = (start + at) % period;
    const int64_t length = std::min(period - phase, count - at);
    visit(at * element_bytes, phase * element_bytes, length * element_bytes);
    at += length;
  }
}

int64_t CountDifferent(const std::byte* a, const std::byte* b, int64_t bytes,
                       int64_t element_bytes) {
  if (std::memcmp(a, b, static_cast<size_t>(bytes)) == 0) return 0;
  int64_t different = 0;
  for (int64_t at = 0; at < bytes; at += element_bytes) {
    different += std::memcmp(a + at, b + at, static_cast<size_t>(element_bytes)) != 0;
  }
  return different;
}

}  // namespace

bool Verifier::HasInPlace(OpKind kind) {
  return kind != OpKind::kAllToAllV && kind != OpKind::kSend && kind != OpKind::kBarrier;
}

Verifier::Verifier(const CollectiveShape& shape, int rank, int size, uint64_t seed)
    : shape_(shape), rank_(rank), size_(size) {
  SetSizes();
  SetSegments();
  MakeTables(seed);
}

void Verifier::SetSizes() {
  const int64_t count = shape_.count;
  const int64_t all = count * size_;
  const bool at_root = rank_ == shape_.root;
  const auto rank = static_cast<size_t>(rank_);
  switch (shape_.kind) {
    case OpKind::kAllReduce:
      input_elements_ = output_elements_ = count;
      break;
    case OpKind::kReduce:
      input_elements_ = count;
      output_elements_ = at_root ? count : 0;
      break;
    case OpKind::kBroadcast:
      // The root's buffer is its input.
      input_elements_ = at_root ? count : 0;
      output_elements_ = at_root ? 0 : count;
      break;
    case OpKind::kAllGather:
      input_elements_ = count;
      output_elements_ = all;
      in_place_input_ = rank_ * count;
      break;
    case OpKind::kAllGatherV:
      for (int r = 0; r < size_; ++r) recv_counts_.push_back(PartCount(count, r));
      input_elements_ = recv_counts_[rank];
      output_elements_ = Sum(recv_counts_, recv_counts_.size());
      in_place_input_ = Sum(recv_counts_, rank);
      break;
    case OpKind::kReduceScatter:
      input_elements_ = all;
      output_elements_ = count;
      in_place_output_ = rank_ * count;
      break;
    case OpKind::kReduceScatterV:
      for (int r = 0; r < size_; ++r) send_counts_.push_back(PartCount(count, r));
      input_elements_ = Sum(send_counts_, send_counts_.size());
      output_elements_ = send_counts_[rank];
      in_place_output_ = Sum(send_counts_, rank);
      break;
    case OpKind::kAllToAll:
      input_elements_ = output_elements_ = all;
      break;
    case OpKind::kAllToAllV:
      for (int r = 0; r < size_; ++r) {
        send_counts_.push_back(PartCount(count, rank_ + 2 * r));
        recv_counts_.push_back(PartCount(count, r + 2 * rank_));
      }
      input_elements_ = Sum(send_counts_, send_counts_.size());
      output_elements_ = Sum(recv_counts_, recv_counts_.size());
      break;
    case OpKind::kGather:
      input_elements_ = count;
      output_elements_ = at_root ? all : 0;
      in_place_input_ = rank_ * count;
      break;
    case OpKind::kScatter:
      input_elements_ = at_root ? all : 0;
      output_elements_ = count;
      in_place_output_ = rank_ * count;
      break;
    case OpKind::kSend:
      input_elements_ = output_elements_ = count;
      break;
    case OpKind::kBarrier:
      break;
    case OpKind::kRecv:
    case OpKind::kGroup:
      CRIA_CHECK(false, "no shape of its own: ", Name(shape_.kind));
  }
}

void Verifier::AddSegment(int64_t at, int64_t count, int64_t start, int table) {
  if (count > 0) expected_.push_back({at, count, start, static_cast<size_t>(table)});
}

void Verifier::SetSegments() {
  const int64_t count = shape_.count;
  const int combined = size_;
  switch (shape_.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      return AddSegment(0, output_elements_, 0, combined);
    case OpKind::kBroadcast:
      return AddSegment(0, output_elements_, 0, shape_.root);
    case OpKind::kReduceScatter:
    case OpKind::kReduceScatterV:
      return AddSegment(0, output_elements_, in_place_output_, combined);
    case OpKind::kScatter:
      return AddSegment(0, count, rank_ * count, shape_.root);
    case OpKind::kSend:
      return AddSegment(0, count, 0, (rank_ + size_ - 1) % size_);
    case OpKind::kAllGather:
    case OpKind::kGather:
      for (int r = 0; r < size_ && output_elements_ > 0; ++r) AddSegment(r * count, count, 0, r);
      return;
    case OpKind::kAllGatherV:
      for (int r = 0; r < size_; ++r) {
        const auto i = static_cast<size_t>(r);
        AddSegment(Sum(recv_counts_, i), recv_counts_[i], 0, r);
      }
      return;
    case OpKind::kAllToAll:
      for (int r = 0; r < size_; ++r) AddSegment(r * count, count, rank_ * count, r);
      return;
    case OpKind::kAllToAllV:
      for (int r = 0; r < size_; ++r) {
        int64_t start = 0;  // of this rank's part in the input of r
        for (int before = 0; before < rank_; ++before) start += PartCount(count, r + 2 * before);
        const auto i = static_cast<size_t>(r);
        AddSegment(Sum(recv_counts_, i), recv_counts_[i], start, r);
      }
      return;
    default:
      return;
  }
}

void Verifier::MakeTables(uint64_t seed) {
  int64_t longest = std::max<int64_t>(input_elements_, 1);
  for (const Segment& s : expected_) longest = std::max(longest, s.start + s.count);
  period_ = std::min(kPeriod, longest);
  const ValueSpec spec = {
      .dtype = shape_.dtype, .op = shape_.op, .size = size_, .seed = seed * 1000003};
  const int64_t element_bytes = ByteSize(shape_.dtype);
  tables_.resize(static_cast<size_t>(size_) + 1);
  const auto make = [&](size_t table) {
    std::vector<std::byte>& bytes = tables_[table];
    if (!bytes.empty()) return;
    bytes.resize(static_cast<size_t>(period_ * element_bytes));
    for (int64_t i = 0; i < period_; ++i) {
      std::byte* const to = bytes.data() + i * element_bytes;
      if (table == static_cast<size_t>(size_)) {
        WriteCombined(spec, i, to);
      } else {
        WriteValue(spec, static_cast<int>(table), i, to);
      }
    }
  };
  make(static_cast<size_t>(rank_));
  for (const Segment& s : expected_) make(s.table);
}

void Verifier::FillInput(void* input) const {
  const std::byte* const table = tables_[static_cast<size_t>(rank_)].data();
  ForStretches(input_elements_, 0, period_, ByteSize(shape_.dtype),
               [&](int64_t at, int64_t phase, int64_t bytes) {
                 std::memcpy(At(input, at), table + phase, static_cast<size_t>(bytes));
               });
}

int64_t Verifier::CountInputChanged(const void* input) const {
  const std::byte* const table = tables_[static_cast<size_t>(rank_)].data();
  const int64_t element_bytes = ByteSize(shape_.dtype);
  int64_t changed = 0;
  ForStretches(input_elements_, 0, period_, element_bytes,
               [&](int64_t at, int64_t phase, int64_t bytes) {
                 changed += CountDifferent(At(input, at), table + phase, bytes, element_bytes);
               });
  return changed;
}

int64_t Verifier::CountWrong(const void* output, int64_t first, int64_t count) const {
  const int64_t element_bytes = ByteSize(shape_.dtype);
  int64_t wrong = 0;
  for (const Segment& segment : expected_) {
    const int64_t from = std::max(segment.at, first);
    const int64_t to = std::min(segment.at + segment.count, first + count);
    if (from >= to) continue;
    const std::byte* const table = tables_[segment.table].data();
    const std::byte* const part = At(output, (from - first) * element_bytes);
    ForStretches(to - from, segment.start + from - segment.at, period_, element_bytes,
                 [&](int64_t at, int64_t phase, int64_t bytes) {
                   wrong += CountDifferent(part + at, table + phase, bytes, element_bytes);
                 });
  }
  return wrong;
}

Work Verifier::Run(Communicator* comm, const void* input, void* output,
                   const CallOptions& call) const {
  const CollectiveShape& s = shape_;
  switch (s.kind) {
    case OpKind::kAllReduce:
      return comm->AllReduce({.input = input,
                              .output = output,
                              .count = s.count,
                              .dtype = s.dtype,
                              .op = s.op,
                              .call = call});
    case OpKind::kReduce:
      return comm->Reduce({.input = input,
                           .output = output,
                           .count = s.count,
                           .dtype = s.dtype,
                           .op = s.op,
                           .root = s.root,
                           .call = call});
    case OpKind::kBroadcast:
      return comm->Broadcast({.buffer = rank_ == s.root ? const_cast<void*>(input) : output,
                              .count = s.count,
                              .dtype = s.dtype,
                              .root = s.root,
                              .call = call});
    case OpKind::kAllGather:
      return comm->AllGather(
          {.input = input, .output = output, .count = s.count, .dtype = s.dtype, .call = call});
    case OpKind::kAllGatherV:
      return comm->AllGatherV({.input = input,
                               .output = output,
                               .counts = recv_counts_,
                               .dtype = s.dtype,
                               .call = call});
    case OpKind::kReduceScatter:
      return comm->ReduceScatter({.input = input,
                                  .output = output,
                                  .count = s.count,
                                  .dtype = s.dtype,
                                  .op = s.op,
                                  .call = call});
    case OpKind::kReduceScatterV:
      return comm->ReduceScatterV({.input = input,
                                   .output = output,
                                   .counts = send_counts_,
                                   .dtype = s.dtype,
                                   .op = s.op,
                                   .call = call});
    case OpKind::kAllToAll:
      return comm->AllToAll(
          {.input = input, .output = output, .count = s.count, .dtype = s.dtype, .call = call});
    case OpKind::kAllToAllV:
      return comm->AllToAllV({.input = input,
                              .output = output,
                              .send_counts = send_counts_,
                              .recv_counts = recv_counts_,
                              .dtype = s.dtype,
                              .call = call});
    case OpKind::kGather:
      return comm->Gather({.input = input,
                           .output = output,
                           .count = s.count,
                           .dtype = s.dtype,
                           .root = s.root,
                           .call = call});
    case OpKind::kScatter:
      return comm->Scatter({.input = input,
                            .output = output,
                            .count = s.count,
                            .dtype = s.dtype,
                            .root = s.root,
                            .call = call});
    case OpKind::kSend: {
      const Status started = comm->GroupStart();
      if (!started.ok()) return Work(0, started);
      const Work send = comm->Send(
          {.buffer = input, .count = s.count, .dtype = s.dtype, .peer = (rank_ + 1) % size_});
      const Work recv = comm->Recv({.buffer = output,
                                    .count = s.count,
                                    .dtype = s.dtype,
                                    .peer = (rank_ + size_ - 1) % size_});
      const Work work = comm->GroupEnd(call);
      if (!send.WaitFor(0).ok() && send.done()) return send;
      return !recv.WaitFor(0).ok() && recv.done() ? recv : work;
    }
    default:
      return comm->Barrier({.call = call});
  }
}

}  // namespace cria::comm

#include "comm/mpi/mpi_port.h"

// The C interface alone.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/str.h"
#include "comm/reduce/reduce.h"

namespace cria::comm {
namespace {

// Of one MPI call: far enough below 2^31 that sums of counts inside MPI stay below it as well.
constexpr int64_t kChunkElements = int64_t{1} << 27;
constexpr int64_t kChunkBytes = int64_t{1} << 30;

// Tags of point-to-point messages; collectives have their own context in MPI.
constexpr int kNoteTag = 1;
constexpr int kMeetTag = 2;
constexpr int kMeetTags = 1 << 16;  // by the id of the group, so that few groups share one
constexpr int kChannelTag = kMeetTag + kMeetTags;
constexpr int kNoteBytesMax = 1024;

std::byte* Bytes(void* p) { return static_cast<std::byte*>(p); }
const std::byte* Bytes(const void* p) { return static_cast<const std::byte*>(p); }

Status Check(const char* call, int code) {
  if (code == MPI_SUCCESS) return OkStatus();
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(code, &error_class);
  const std::string message = StrCat(call, ": ", text.data());
  if (error_class == MPI_ERR_TRUNCATE) return InvalidArgumentError(message);
  return InternalError(message);
}

MPI_Datatype TypeOf(DataType dtype, ReduceOp op) {
  const bool compares = op == ReduceOp::kMin || op == ReduceOp::kMax;
  // Sums and products are taken unsigned: they wrap around, which signed overflow need not.
  switch (dtype) {
    case DataType::kFloat32:
      return MPI_FLOAT;
    case DataType::kInt8:
      return compares ? MPI_INT8_T : MPI_UINT8_T;
    case DataType::kUint8:
      return MPI_UINT8_T;
    case DataType::kInt16:
      return compares ? MPI_INT16_T : MPI_UINT16_T;
    case DataType::kInt32:
      return compares ? MPI_INT32_T : MPI_UINT32_T;
    case DataType::kInt64:
      return compares ? MPI_INT64_T : MPI_UINT64_T;
    default:
      CRIA_CHECK(false, "MPI does not reduce ", Name(dtype));
      return MPI_DATATYPE_NULL;
  }
}

// One of our kernels as an operation of MPI.
template <DataType kType, ReduceOp kOp>
void Combine(void* in, void* inout, int* count, MPI_Datatype*) {
  const ReduceKernel kernel = {.dtype = kType, .op = kOp};
  const ReduceSource sources[] = {{inout, true}, {in, true}};
  const ReduceTarget targets[] = {{inout, true}};
  RunReduce(kernel, sources, targets, *count);
}

template <DataType kType, ReduceOp kOp>
MPI_Op OwnOp() {
  static const MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    MPI_Op_create(&Combine<kType, kOp>, /*commute=*/1, &made);
    return made;
  }();
  return op;
}

template <ReduceOp kOp>
MPI_Op OwnOpOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return OwnOp<DataType::kFloat32, kOp>();
    case DataType::kInt8:
      return OwnOp<DataType::kInt8, kOp>();
    case DataType::kUint8:
      return OwnOp<DataType::kUint8, kOp>();
    default:
      return OwnOp<DataType::kInt16, kOp>();
  }
}

// Ours where MPI's own means something else: minimum and maximum of NaN and of signed zeros, which
// MPI leaves open; sums of short integers, which Open MPI 4.1 does not always wrap around.
MPI_Op OpOf(DataType dtype, ReduceOp op) {
  const bool is_float = dtype == DataType::kFloat32;
  const bool is_short = ByteSize(dtype) < 4;
  switch (op) {
    case ReduceOp::kSum:
      return is_short ? OwnOpOf<ReduceOp::kSum>(dtype) : MPI_SUM;
    case ReduceOp::kMin:
      return is_float ? OwnOpOf<ReduceOp::kMin>(dtype) : MPI_MIN;
    case ReduceOp::kMax:
      return is_float ? OwnOpOf<ReduceOp::kMax>(dtype) : MPI_MAX;
    case ReduceOp::kProd:
      return is_short ? OwnOpOf<ReduceOp::kProd>(dtype) : MPI_PROD;
    case ReduceOp::kAvg:
      break;
  }
  CRIA_CHECK(false, "MPI has no ", Name(op));
  return MPI_OP_NULL;
}

// Calls again and again until all requests are done or the wait ends. Then the requests go on: MPI
// has no way to withdraw a collective.
Status Await(std::span<MPI_Request> requests, const MpiWait& wait, const char* call) {
  constexpr uint32_t kPollsPerLook = 64;
  constexpr double kYieldAfterSeconds = 50e-6;
  constexpr double kSleepAfterSeconds = 10e-3;
  const int count = static_cast<int>(requests.size());
  double start_s = 0;
  double listened_s = 0;
  for (uint32_t polls = 1;; ++polls) {
    int done = 0;
    CRIA_RETURN_IF_ERROR(
        Check(call, MPI_Testall(count, requests.data(), &done, MPI_STATUSES_IGNORE)));
    if (done != 0) return OkStatus();
    if (wait.failure->failed()) return wait.failure->status();
    if (polls % kPollsPerLook != 0) continue;
    const double now_s = RealClock()->MonotonicSeconds();
    if (start_s == 0) start_s = now_s;
    if (now_s > wait.deadline_s) return DeadlineExceededError(call, ": the deadline passed");
    if (wait.listen && now_s > listened_s + 1e-3) {
      wait.listen();
      listened_s = now_s;
    }
    if (now_s > start_s + kSleepAfterSeconds) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (now_s > start_s + kYieldAfterSeconds) {
      sched_yield();
    }
  }
}

// The ints of MPI's V calls, when they fit.
std::optional<std::vector<int>> AsInts(std::span<const int64_t> values) {
  std::vector<int> ints;
  ints.reserve(values.size());
  for (const int64_t value : values) {
    if (value > kChunkBytes) return std::nullopt;
    ints.push_back(static_cast<int>(value));
  }
  return ints;
}

void AddRequests(std::span<const MpiMessage> messages, bool send, int tag, MPI_Comm comm,
                 std::vector<MPI_Request>* requests, Status* status) {
  for (const MpiMessage& message : messages) {
    for (int64_t at = 0; at == 0 || at < message.bytes; at += kChunkBytes) {
      const auto bytes = static_cast<int>(std::min(kChunkBytes, message.bytes - at));
      std::byte* const data = Bytes(message.data) + at;
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = send ? MPI_Isend(data, bytes, MPI_BYTE, message.peer, tag, comm, &request)
                            : MPI_Irecv(data, bytes, MPI_BYTE, message.peer, tag, comm, &request);
      if (status->ok()) *status = Check(send ? "MPI_Isend" : "MPI_Irecv", code);
      requests->push_back(request);
    }
  }
}

Status ExchangeOn(MPI_Comm comm, std::span<const MpiMessage> sends,
                  std::span<const MpiMessage> recvs, int tag, const MpiWait& wait) {
  std::vector<MPI_Request> requests;
  Status status;
  AddRequests(recvs, false, tag, comm, &requests, &status);
  AddRequests(sends, true, tag, comm, &requests, &status);
  CRIA_RETURN_IF_ERROR(status);
  return Await(requests, wait, "MPI_Isend, MPI_Irecv");
}

}  // namespace

struct MpiPort::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
};

MpiPort::MpiPort(std::shared_ptr<MpiRuntime> runtime, bool blocking, std::unique_ptr<Handle> handle)
    : runtime_(std::move(runtime)), blocking_(blocking), handle_(std::move(handle)) {
  MPI_Comm_set_errhandler(handle_->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(handle_->comm, &rank_);
  MPI_Comm_size(handle_->comm, &size_);
}

MpiPort::~MpiPort() {
  if (handle_->comm != MPI_COMM_NULL) MPI_Comm_free(&handle_->comm);
}

StatusOr<std::unique_ptr<MpiPort>> MpiPort::DuplicateWorld(std::shared_ptr<MpiRuntime> runtime,
                                                           bool blocking, const MpiWait& wait) {
  auto handle = std::make_unique<Handle>();
  MPI_Request request = MPI_REQUEST_NULL;
  CRIA_RETURN_IF_ERROR(
      Check("MPI_Comm_idup", MPI_Comm_idup(MPI_COMM_WORLD, &handle->comm, &request)));
  const Status status = Await({&request, 1}, wait, "MPI_Comm_idup");
  if (!status.ok()) {
    runtime->MarkBroken();
    // MPI may still write the handle.
    handle.release();
    return status;
  }
  return std::unique_ptr<MpiPort>(new MpiPort(std::move(runtime), blocking, std::move(handle)));
}

StatusOr<std::unique_ptr<MpiPort>> MpiPort::CreateGroup(std::shared_ptr<MpiRuntime> runtime,
                                                        bool blocking,
                                                        const std::vector<int>& world_ranks,
                                                        uint64_t id, const MpiWait& wait) {
  // All tell the first, which tells all: with a tag made of the id, only those meet who passed the
  // same list and name.
  const int tag = kMeetTag + static_cast<int>(id % kMeetTags);
  const int first = world_ranks[0];
  std::vector<MpiMessage> up, down;
  if (runtime->rank() == first) {
    for (const int r : world_ranks) {
      if (r != first) up.push_back({.peer = r});
    }
    down = up;
    CRIA_RETURN_IF_ERROR(ExchangeOn(MPI_COMM_WORLD, {}, up, tag, wait));
    CRIA_RETURN_IF_ERROR(ExchangeOn(MPI_COMM_WORLD, down, {}, tag, wait));
  } else {
    up.push_back({.peer = first});
    CRIA_RETURN_IF_ERROR(ExchangeOn(MPI_COMM_WORLD, up, {}, tag, wait));
    CRIA_RETURN_IF_ERROR(ExchangeOn(MPI_COMM_WORLD, {}, up, tag, wait));
  }
  auto handle = std::make_unique<Handle>();
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group);
  const Status status = Check("MPI_Comm_create_group",
                              MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &handle->comm));
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  CRIA_RETURN_IF_ERROR(status);
  return std::unique_ptr<MpiPort>(new MpiPort(std::move(runtime), blocking, std::move(handle)));
}

template <typename Start, typename Block>
Status MpiPort::Run(const char* call, const MpiWait& wait, const Start& start, const Block& block) {
  if (blocking_) return Check(call, block());
  MPI_Request request = MPI_REQUEST_NULL;
  CRIA_RETURN_IF_ERROR(Check(call, start(&request)));
  return Await({&request, 1}, wait, call);
}

Status MpiPort::AllReduce(const void* input, void* output, int64_t count, DataType dtype,
                          ReduceOp op, const MpiWait& wait) {
  const MPI_Datatype type = TypeOf(dtype, op);
  const MPI_Op mpi_op = OpOf(dtype, op);
  const bool in_place = input == nullptr || input == output;
  for (int64_t at = 0; at < count; at += kChunkElements) {
    const int n = static_cast<int>(std::min(kChunkElements, count - at));
    const int64_t offset = at * ByteSize(dtype);
    const void* const in = in_place ? MPI_IN_PLACE : Bytes(input) + offset;
    void* const out = Bytes(output) + offset;
    CRIA_RETURN_IF_ERROR(Run(
        "MPI_Iallreduce", wait,
        [&](MPI_Request* r) { return MPI_Iallreduce(in, out, n, type, mpi_op, handle_->comm, r); },
        [&] { return MPI_Allreduce(in, out, n, type, mpi_op, handle_->comm); }));
  }
  return OkStatus();
}

Status MpiPort::Reduce(const void* input, void* output, int64_t count, DataType dtype, ReduceOp op,
                       int root, const MpiWait& wait) {
  const MPI_Datatype type = TypeOf(dtype, op);
  const MPI_Op mpi_op = OpOf(dtype, op);
  const bool in_place = rank_ == root && input == output;
  for (int64_t at = 0; at < count; at += kChunkElements) {
    const int n = static_cast<int>(std::min(kChunkElements, count - at));
    const int64_t offset = at * ByteSize(dtype);
    const void* const in = in_place ? MPI_IN_PLACE : Bytes(input) + offset;
    void* const out = rank_ == root ? Bytes(output) + offset : nullptr;
    CRIA_RETURN_IF_ERROR(Run(
        "MPI_Ireduce", wait,
        [&](MPI_Request* r) {
          return MPI_Ireduce(in, out, n, type, mpi_op, root, handle_->comm, r);
        },
        [&] { return MPI_Reduce(in, out, n, type, mpi_op, root, handle_->comm); }));
  }
  return OkStatus();
}

Status MpiPort::ReduceScatter(const void* input, void* output, std::span<const int64_t> counts,
                              DataType dtype, ReduceOp op, const MpiWait& wait) {
  int64_t sum = 0;
  bool equal = true;
  for (const int64_t count : counts) {
    sum += count;
    equal = equal && count == counts[0];
  }
  if (sum > kChunkElements) {
    // Each part to its rank: as many bytes, more messages.
    int64_t at = 0;
    for (int r = 0; r < size_; ++r) {
      const int64_t count = counts[static_cast<size_t>(r)];
      CRIA_RETURN_IF_ERROR(
          Reduce(Bytes(input) + at * ByteSize(dtype), output, count, dtype, op, r, wait));
      at += count;
    }
    return OkStatus();
  }
  const MPI_Datatype type = TypeOf(dtype, op);
  const MPI_Op mpi_op = OpOf(dtype, op);
  const std::vector<int> ints = *AsInts(counts);
  return Run(
      equal ? "MPI_Ireduce_scatter_block" : "MPI_Ireduce_scatter", wait,
      [&](MPI_Request* r) {
        return equal ? MPI_Ireduce_scatter_block(input, output, ints[0], type, mpi_op,
                                                 handle_->comm, r)
                     : MPI_Ireduce_scatter(input, output, ints.data(), type, mpi_op, handle_->comm,
                                           r);
      },
      [&] {
        return equal ? MPI_Reduce_scatter_block(input, output, ints[0], type, mpi_op, handle_->comm)
                     : MPI_Reduce_scatter(input, output, ints.data(), type, mpi_op, handle_->comm);
      });
}

Status MpiPort::Broadcast(void* data, int64_t bytes, int root, const MpiWait& wait) {
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int n = static_cast<int>(std::min(kChunkBytes, bytes - at));
    std::byte* const part = Bytes(data) + at;
    CRIA_RETURN_IF_ERROR(Run(
        "MPI_Ibcast", wait,
        [&](MPI_Request* r) { return MPI_Ibcast(part, n, MPI_BYTE, root, handle_->comm, r); },
        [&] { return MPI_Bcast(part, n, MPI_BYTE, root, handle_->comm); }));
  }
  return OkStatus();
}

Status MpiPort::AllGather(const void* input, void* output, int64_t bytes, const MpiWait& wait) {
  if (bytes > kChunkBytes / size_) {
    std::vector<int64_t> counts(static_cast<size_t>(size_), bytes);
    std::vector<int64_t> places;
    for (int r = 0; r < size_; ++r) places.push_back(bytes * r);
    return AllGatherV(input, output, counts, places, wait);
  }
  const int n = static_cast<int>(bytes);
  const bool in_place = input == Bytes(output) + bytes * rank_;
  const void* const in = in_place ? MPI_IN_PLACE : input;
  return Run(
      "MPI_Iallgather", wait,
      [&](MPI_Request* r) {
        return MPI_Iallgather(in, n, MPI_BYTE, output, n, MPI_BYTE, handle_->comm, r);
      },
      [&] { return MPI_Allgather(in, n, MPI_BYTE, output, n, MPI_BYTE, handle_->comm); });
}

Status MpiPort::AllGatherV(const void* input, void* output, std::span<const int64_t> bytes,
                           std::span<const int64_t> displacements, const MpiWait& wait) {
  const int64_t own = bytes[static_cast<size_t>(rank_)];
  std::byte* const place = Bytes(output) + displacements[static_cast<size_t>(rank_)];
  int64_t end = 0;
  for (size_t r = 0; r < bytes.size(); ++r) end = std::max(end, displacements[r] + bytes[r]);
  if (end <= kChunkBytes) {
    const std::vector<int> counts = *AsInts(bytes);
    const std::vector<int> places = *AsInts(displacements);
    const int n = static_cast<int>(own);
    const void* const in = input == place ? MPI_IN_PLACE : input;
    return Run(
        "MPI_Iallgatherv", wait,
        [&](MPI_Request* r) {
          return MPI_Iallgatherv(in, n, MPI_BYTE, output, counts.data(), places.data(), MPI_BYTE,
                                 handle_->comm, r);
        },
        [&] {
          return MPI_Allgatherv(in, n, MPI_BYTE, output, counts.data(), places.data(), MPI_BYTE,
                                handle_->comm);
        });
  }
  std::vector<MpiMessage> sends, recvs;
  for (int r = 0; r < size_; ++r) {
    const auto i = static_cast<size_t>(r);
    if (r == rank_) continue;
    if (own > 0) sends.push_back({r, const_cast<void*>(input), own});
    if (bytes[i] > 0) recvs.push_back({r, Bytes(output) + displacements[i], bytes[i]});
  }
  if (own > 0 && input != place) std::memcpy(place, input, static_cast<size_t>(own));
  return Exchange(sends, recvs, 0, wait);
}

Status MpiPort::Gather(const void* input, void* output, int64_t bytes, int root,
                       const MpiWait& wait) {
  const bool at_root = rank_ == root;
  std::byte* const place = at_root ? Bytes(output) + bytes * rank_ : nullptr;
  if (bytes <= kChunkBytes / size_) {
    const int n = static_cast<int>(bytes);
    const void* const in = at_root && input == place ? MPI_IN_PLACE : input;
    return Run(
        "MPI_Igather", wait,
        [&](MPI_Request* r) {
          return MPI_Igather(in, n, MPI_BYTE, output, n, MPI_BYTE, root, handle_->comm, r);
        },
        [&] { return MPI_Gather(in, n, MPI_BYTE, output, n, MPI_BYTE, root, handle_->comm); });
  }
  std::vector<MpiMessage> sends, recvs;
  for (int r = 0; at_root && r < size_; ++r) {
    if (r != rank_) recvs.push_back({r, Bytes(output) + bytes * r, bytes});
  }
  if (!at_root) sends.push_back({root, const_cast<void*>(input), bytes});
  if (at_root && input != place) std::memcpy(place, input, static_cast<size_t>(bytes));
  return Exchange(sends, recvs, 0, wait);
}

Status MpiPort::Scatter(const void* input, void* output, int64_t bytes, int root,
                        const MpiWait& wait) {
  const bool at_root = rank_ == root;
  const std::byte* const place = at_root ? Bytes(input) + bytes * rank_ : nullptr;
  if (bytes <= kChunkBytes / size_) {
    const int n = static_cast<int>(bytes);
    void* const out = at_root && output == place ? MPI_IN_PLACE : output;
    return Run(
        "MPI_Iscatter", wait,
        [&](MPI_Request* r) {
          return MPI_Iscatter(input, n, MPI_BYTE, out, n, MPI_BYTE, root, handle_->comm, r);
        },
        [&] { return MPI_Scatter(input, n, MPI_BYTE, out, n, MPI_BYTE, root, handle_->comm); });
  }
  std::vector<MpiMessage> sends, recvs;
  for (int r = 0; at_root && r < size_; ++r) {
    if (r != rank_) sends.push_back({r, const_cast<std::byte*>(Bytes(input)) + bytes * r, bytes});
  }
  if (!at_root) recvs.push_back({root, output, bytes});
  if (at_root && output != place) std::memcpy(output, place, static_cast<size_t>(bytes));
  return Exchange(sends, recvs, 0, wait);
}

Status MpiPort::AllToAll(const void* input, void* output, int64_t bytes, const MpiWait& wait) {
  const bool in_place = input == output;
  if (bytes <= kChunkBytes / size_) {
    const int n = static_cast<int>(bytes);
    const void* const in = in_place ? MPI_IN_PLACE : input;
    return Run(
        "MPI_Ialltoall", wait,
        [&](MPI_Request* r) {
          return MPI_Ialltoall(in, n, MPI_BYTE, output, n, MPI_BYTE, handle_->comm, r);
        },
        [&] { return MPI_Alltoall(in, n, MPI_BYTE, output, n, MPI_BYTE, handle_->comm); });
  }
  std::vector<std::byte> copy;
  if (in_place) {
    copy.assign(Bytes(input), Bytes(input) + bytes * size_);
    input = copy.data();
  }
  std::vector<MpiMessage> sends, recvs;
  for (int r = 0; r < size_; ++r) {
    sends.push_back({r, const_cast<std::byte*>(Bytes(input)) + bytes * r, bytes});
    recvs.push_back({r, Bytes(output) + bytes * r, bytes});
  }
  return Exchange(sends, recvs, 0, wait);
}

Status MpiPort::Barrier(const MpiWait& wait) {
  return Run(
      "MPI_Ibarrier", wait, [&](MPI_Request* r) { return MPI_Ibarrier(handle_->comm, r); },
      [&] { return MPI_Barrier(handle_->comm); });
}

Status MpiPort::Exchange(std::span<const MpiMessage> sends, std::span<const MpiMessage> recvs,
                         int channel, const MpiWait& wait) {
  return ExchangeOn(handle_->comm, sends, recvs, kChannelTag + channel, wait);
}

Status MpiPort::Exchange(std::span<const Channel> channels, const MpiWait& wait) {
  std::vector<MPI_Request> requests;
  Status status;
  for (const Channel& channel : channels) {
    const int tag = kChannelTag + channel.number;
    AddRequests(channel.recvs, false, tag, handle_->comm, &requests, &status);
    AddRequests(channel.sends, true, tag, handle_->comm, &requests, &status);
  }
  CRIA_RETURN_IF_ERROR(status);
  return Await(requests, wait, "MPI_Isend, MPI_Irecv");
}

void MpiPort::Tell(const std::string& note) {
  // The requests and the text outlive this object: who tells a note ends without MPI_Finalize.
  auto* const text = new std::string(note.substr(0, kNoteBytesMax));
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(text->data(), static_cast<int>(text->size()), MPI_CHAR, r, kNoteTag, handle_->comm,
              &request);
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

std::optional<MpiPort::Note> MpiPort::Hear() {
  int there = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, kNoteTag, handle_->comm, &there, &status) != MPI_SUCCESS ||
      there == 0) {
    return std::nullopt;
  }
  Note note = {.rank = status.MPI_SOURCE, .text = std::string(kNoteBytesMax, '\0')};
  if (MPI_Recv(note.text.data(), kNoteBytesMax, MPI_CHAR, note.rank, kNoteTag, handle_->comm,
               &status) != MPI_SUCCESS) {
    return std::nullopt;
  }
  int length = 0;
  MPI_Get_count(&status, MPI_CHAR, &length);
  note.text.resize(static_cast<size_t>(std::clamp(length, 0, kNoteBytesMax)));
  return note;
}

}  // namespace cria::comm

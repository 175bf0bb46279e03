#include "comm/api/communicator.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

#include "comm/api/error.h"

namespace cria::comm {
namespace {

// Memory that only this process sees.
class PrivateBuffer : public SharedBuffer {
 public:
  static constexpr std::align_val_t kAlignment{64};

  explicit PrivateBuffer(int64_t bytes)
      : data_(::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 1)), kAlignment,
                             std::nothrow)),
        bytes_(bytes) {}
  ~PrivateBuffer() override { ::operator delete(data_, kAlignment); }
  PrivateBuffer(const PrivateBuffer&) = delete;
  PrivateBuffer& operator=(const PrivateBuffer&) = delete;

  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  void* const data_;
  const int64_t bytes_;
};

Operation Make(OpKind kind, DataType dtype, const CallOptions& call) {
  return {.kind = kind, .dtype = dtype, .timeout_s = call.timeout_s, .async = call.async};
}

}  // namespace

Work Communicator::Checked(const Operation& operation) {
  Status status = ValidateOperation(operation, rank(), size());
  if (status.ok()) return Submit(operation);
  return Work(0, ToStatus({.kind = CommErrorKind::kBadArgument,
                           .group = name(),
                           .rank = rank(),
                           .world_rank = world_ranks()[static_cast<size_t>(rank())],
                           .operation = Name(operation.kind),
                           .reason = Message(status)}));
}

Work Communicator::AllReduce(const AllReduceOptions& options) {
  Operation operation = Make(OpKind::kAllReduce, options.dtype, options.call);
  operation.reduce_op = options.op;
  operation.input = options.input;
  operation.output = options.output;
  operation.count = options.count;
  return Checked(operation);
}

Work Communicator::Reduce(const ReduceOptions& options) {
  Operation operation = Make(OpKind::kReduce, options.dtype, options.call);
  operation.reduce_op = options.op;
  operation.input = options.input;
  operation.output = options.root == rank() ? options.output : nullptr;
  operation.count = options.count;
  operation.root_or_peer = options.root;
  return Checked(operation);
}

Work Communicator::Broadcast(const BroadcastOptions& options) {
  Operation operation = Make(OpKind::kBroadcast, options.dtype, options.call);
  operation.input = options.root == rank() ? options.buffer : nullptr;
  operation.output = options.buffer;
  operation.count = options.count;
  operation.root_or_peer = options.root;
  return Checked(operation);
}

Work Communicator::AllGather(const AllGatherOptions& options) {
  Operation operation = Make(OpKind::kAllGather, options.dtype, options.call);
  operation.input = options.input;
  operation.output = options.output;
  operation.count = options.count;
  return Checked(operation);
}

Work Communicator::AllGatherV(const AllGatherVOptions& options) {
  Operation operation = Make(OpKind::kAllGatherV, options.dtype, options.call);
  operation.input = options.input;
  operation.output = options.output;
  operation.recv_counts = options.counts;
  operation.recv_displacements = options.displacements;
  return Checked(operation);
}

Work Communicator::ReduceScatter(const ReduceScatterOptions& options) {
  Operation operation = Make(OpKind::kReduceScatter, options.dtype, options.call);
  operation.reduce_op = options.op;
  operation.input = options.input;
  operation.output = options.output;
  operation.count = options.count;
  return Checked(operation);
}

Work Communicator::ReduceScatterV(const ReduceScatterVOptions& options) {
  Operation operation = Make(OpKind::kReduceScatterV, options.dtype, options.call);
  operation.reduce_op = options.op;
  operation.input = options.input;
  operation.output = options.output;
  operation.send_counts = options.counts;
  return Checked(operation);
}

Work Communicator::AllToAll(const AllToAllOptions& options) {
  Operation operation = Make(OpKind::kAllToAll, options.dtype, options.call);
  operation.input = options.input;
  operation.output = options.output;
  operation.count = options.count;
  return Checked(operation);
}

Work Communicator::AllToAllV(const AllToAllVOptions& options) {
  Operation operation = Make(OpKind::kAllToAllV, options.dtype, options.call);
  operation.input = options.input;
  operation.output = options.output;
  operation.send_counts = options.send_counts;
  operation.recv_counts = options.recv_counts;
  operation.send_displacements = options.send_displacements;
  operation.recv_displacements = options.recv_displacements;
  return Checked(operation);
}

Work Communicator::Gather(const GatherOptions& options) {
  Operation operation = Make(OpKind::kGather, options.dtype, options.call);
  operation.input = options.input;
  operation.output = options.root == rank() ? options.output : nullptr;
  operation.count = options.count;
  operation.root_or_peer = options.root;
  return Checked(operation);
}

Work Communicator::Scatter(const ScatterOptions& options) {
  Operation operation = Make(OpKind::kScatter, options.dtype, options.call);
  operation.input = options.root == rank() ? options.input : nullptr;
  operation.output = options.output;
  operation.count = options.count;
  operation.root_or_peer = options.root;
  return Checked(operation);
}

Work Communicator::Send(const SendOptions& options) {
  Operation operation = Make(OpKind::kSend, options.dtype, options.call);
  operation.input = options.buffer;
  operation.count = options.count;
  operation.root_or_peer = options.peer;
  return Checked(operation);
}

Work Communicator::Recv(const RecvOptions& options) {
  Operation operation = Make(OpKind::kRecv, options.dtype, options.call);
  operation.output = options.buffer;
  operation.count = options.count;
  operation.root_or_peer = options.peer;
  return Checked(operation);
}

Work Communicator::Barrier(const BarrierOptions& options) {
  return Checked(Make(OpKind::kBarrier, DataType::kUint8, options.call));
}

StatusOr<std::unique_ptr<Communicator>> Communicator::Split(int color, int key,
                                                            const std::string& name) {
  struct Entry {
    int32_t color, key;
  };
  std::vector<Entry> entries(static_cast<size_t>(size()));
  const Entry mine = {color, key};
  CRIA_RETURN_IF_ERROR(
      AllGather({.input = &mine, .output = entries.data(), .count = 2, .dtype = DataType::kInt32})
          .Wait());
  if (color < 0) return std::unique_ptr<Communicator>();
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (entries[static_cast<size_t>(r)].color == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&entries](int a, int b) {
    return entries[static_cast<size_t>(a)].key < entries[static_cast<size_t>(b)].key;
  });
  return NewGroup({.ranks = std::move(ranks), .name = name});
}

StatusOr<std::unique_ptr<Communicator>> Communicator::Shrink(const std::vector<int>& excluded) {
  std::vector<int> ranks;
  for (const int r : excluded) {
    if (r < 0 || r >= size()) {
      return InvalidArgumentError("shrink of \"", name(), "\": rank ", r, " is none of ", size());
    }
  }
  for (int r = 0; r < size(); ++r) {
    if (std::find(excluded.begin(), excluded.end(), r) == excluded.end()) ranks.push_back(r);
  }
  return NewGroup({.ranks = std::move(ranks), .name = name() + "/shrunk"});
}

StatusOr<std::unique_ptr<SharedBuffer>> Communicator::Allocate(int64_t bytes) {
  if (bytes < 0) return InvalidArgumentError("a buffer of ", bytes, " bytes");
  auto buffer = std::make_unique<PrivateBuffer>(bytes);
  if (buffer->data() == nullptr) return ResourceExhaustedError("no memory for ", bytes, " bytes");
  return std::unique_ptr<SharedBuffer>(std::move(buffer));
}

}  // namespace cria::comm

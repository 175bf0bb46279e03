#include "comm/gloo/gloo_communicator.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/str.h"
#include "comm/api/error.h"
#include "comm/backend/serial_communicator.h"

namespace cria::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

std::byte* Bytes(const void* p) { return static_cast<std::byte*>(const_cast<void*>(p)); }

// Calls function with a value of the C++ type that gloo reduces for `dtype`; Unimplemented where
// there is none.
template <typename Function>
Status ForType(DataType dtype, const Function& function) {
  switch (dtype) {
    case DataType::kFloat32:
      return function(float{});
    case DataType::kFloat16:
      return function(gloo::float16{});
    case DataType::kInt8:
      return function(int8_t{});
    case DataType::kUint8:
      return function(uint8_t{});
    case DataType::kInt16:
      return function(int16_t{});
    case DataType::kInt32:
      return function(int32_t{});
    case DataType::kInt64:
      return function(int64_t{});
    default:
      return UnimplementedError("gloo does not reduce ", Name(dtype));
  }
}

template <typename T>
gloo::AllreduceOptions::Func FunctionOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::min<T>);
    case ReduceOp::kMax:
      return static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::max<T>);
    case ReduceOp::kProd:
      return static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::product<T>);
    default:
      return static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<T>);
  }
}

template <typename T>
const gloo::ReductionFunction<T>* OldFunctionOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return gloo::ReductionFunction<T>::min;
    case ReduceOp::kMax:
      return gloo::ReductionFunction<T>::max;
    case ReduceOp::kProd:
      return gloo::ReductionFunction<T>::product;
    default:
      return gloo::ReductionFunction<T>::sum;
  }
}

// gloo's exceptions as Status. Its timeouts have no type of their own.
Status FromException(const std::exception& error) {
  const std::string text = error.what();
  if (text.find("imed out") != std::string::npos) return DeadlineExceededError("gloo: ", text);
  if (dynamic_cast<const gloo::IoException*>(&error) != nullptr) {
    return UnavailableError("gloo: ", text);
  }
  return InternalError("gloo: ", text);
}

// Where the ranks of one job meet.
struct Meeting {
  std::shared_ptr<gloo::rendezvous::FileStore> store;
  std::shared_ptr<gloo::transport::Device> device;
};

// Throws.
std::shared_ptr<gloo::Context> Connect(const Meeting& meeting, const std::string& prefix, int rank,
                                       int size, double timeout_s) {
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->setTimeout(Milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
  gloo::rendezvous::PrefixStore store(prefix, *meeting.store);
  auto device = meeting.device;
  context->connectFullMesh(store, device);
  return context;
}

class GlooCommunicator : public SerialCommunicator {
 public:
  GlooCommunicator(Identity identity, Meeting meeting, std::shared_ptr<gloo::Context> context)
      : SerialCommunicator(std::move(identity)),
        meeting_(std::move(meeting)),
        context_(std::move(context)),
        sends_(static_cast<size_t>(size())),
        recvs_(static_cast<size_t>(size())) {}
  ~GlooCommunicator() override { StopQueue(); }

  const char* backend() const override { return "gloo"; }
  StatusOr<std::unique_ptr<Communicator>> NewGroup(const NewGroupOptions& options) override;
  void set_all_reduce(GlooAllReduce algorithm) { all_reduce_ = algorithm; }

 protected:
  Status Execute(const Call& call) override;
  std::string_view AlgorithmOf(const Operation& operation) override {
    return operation.kind == OpKind::kAllReduce ? Name(all_reduce_) : "";
  }

 private:
  Status Run(const Call& call);
  Status Reduction(const Call& call);
  template <typename T>
  void AllReduceOf(const Call& call);
  template <typename T>
  void OldAllReduceOf(const Operation& operation);
  template <typename T>
  void ReduceOf(const Call& call);
  template <typename T>
  void ReduceScatterOf(const Operation& operation);
  void AllGatherVOf(const Call& call);
  void AllToAllVOf(const Call& call);
  void ScatterOf(const Call& call);
  Status Exchange(const Call& call);

  template <typename Options>
  void SetCall(Options* options, const Call& call) {
    options->setTag(static_cast<uint32_t>(call.sequence));
    options->setTimeout(Milliseconds(static_cast<int64_t>(call.timeout_s * 1e3)));
  }

  template <typename T>
  T* Scratch(size_t count) {
    if (scratch_.size() < count * sizeof(T)) scratch_.resize(count * sizeof(T));
    return reinterpret_cast<T*>(scratch_.data());
  }

  const Meeting meeting_;
  const std::shared_ptr<gloo::Context> context_;
  GlooAllReduce all_reduce_ = GlooAllReduce::kRing;
  // Messages sent to and received from each rank.
  std::vector<uint64_t> sends_, recvs_;
  std::vector<std::byte> scratch_;
  // The old interface's algorithms are made for a buffer and run many times: the last one is kept.
  struct {
    const void* data = nullptr;
    int64_t count = 0;
    DataType dtype = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    std::unique_ptr<gloo::Algorithm> algorithm = nullptr;
  } old_;
};

StatusOr<std::unique_ptr<Communicator>> GlooCommunicator::NewGroup(const NewGroupOptions& options) {
  Identity identity = {.name = options.name, .rank = -1, .timeout_s = timeout_s()};
  for (const int r : options.ranks) {
    if (r < 0 || r >= size()) {
      return InvalidArgumentError("group \"", options.name, "\": no rank ", r);
    }
    if (r == rank()) identity.rank = static_cast<int>(identity.world_ranks.size());
    identity.world_ranks.push_back(world_ranks()[static_cast<size_t>(r)]);
  }
  if (identity.rank < 0) {
    return InvalidArgumentError("group \"", options.name, "\" is without this rank");
  }
  std::string prefix = name() + "/" + options.name;
  for (const int r : identity.world_ranks) prefix += StrCat("-", r);
  try {
    auto context = Connect(meeting_, prefix, identity.rank,
                           static_cast<int>(identity.world_ranks.size()), timeout_s());
    return std::unique_ptr<Communicator>(
        std::make_unique<GlooCommunicator>(std::move(identity), meeting_, std::move(context)));
  } catch (const std::exception& error) {
    return FromException(error);
  }
}

Status GlooCommunicator::Execute(const Call& call) {
  try {
    const Status status = Run(call);
    return status;
  } catch (const std::exception& error) {
    return FromException(error);
  }
}

template <typename T>
void GlooCommunicator::OldAllReduceOf(const Operation& operation) {
  T* const data = static_cast<T*>(operation.output);
  if (operation.input != operation.output) {
    std::memcpy(operation.output, operation.input,
                static_cast<size_t>(operation.count) * sizeof(T));
  }
  if (old_.algorithm == nullptr || old_.data != data || old_.count != operation.count ||
      old_.dtype != operation.dtype || old_.op != operation.reduce_op) {
    old_.algorithm.reset();
    old_.algorithm = std::make_unique<gloo::AllreduceHalvingDoubling<T>>(
        context_, std::vector<T*>{data}, static_cast<int>(operation.count),
        OldFunctionOf<T>(operation.reduce_op));
    old_.data = data;
    old_.count = operation.count;
    old_.dtype = operation.dtype;
    old_.op = operation.reduce_op;
  }
  old_.algorithm->run();
}

template <typename T>
void GlooCommunicator::AllReduceOf(const Call& call) {
  const Operation& operation = *call.operation;
  if (all_reduce_ == GlooAllReduce::kHalvingDoubling) return OldAllReduceOf<T>(operation);
  gloo::AllreduceOptions options(context_);
  options.setAlgorithm(all_reduce_ == GlooAllReduce::kRing
                           ? gloo::AllreduceOptions::Algorithm::RING
                           : gloo::AllreduceOptions::Algorithm::BCUBE);
  const auto count = static_cast<size_t>(operation.count);
  if (operation.input != operation.output) {
    options.setInput(reinterpret_cast<T*>(Bytes(operation.input)), count);
  }
  options.setOutput(static_cast<T*>(operation.output), count);
  options.setReduceFunction(FunctionOf<T>(operation.reduce_op));
  SetCall(&options, call);
  gloo::allreduce(options);
}

template <typename T>
void GlooCommunicator::ReduceOf(const Call& call) {
  const Operation& operation = *call.operation;
  gloo::ReduceOptions options(context_);
  const auto count = static_cast<size_t>(operation.count);
  // gloo wants an output on every rank and uses it on the way.
  T* const output =
      rank() == operation.root_or_peer ? static_cast<T*>(operation.output) : Scratch<T>(count);
  if (operation.input != output) {
    options.setInput(reinterpret_cast<T*>(Bytes(operation.input)), count);
  }
  options.setOutput(output, count);
  options.setRoot(operation.root_or_peer);
  options.setReduceFunction(FunctionOf<T>(operation.reduce_op));
  SetCall(&options, call);
  gloo::reduce(options);
}

// The old interface, which works in place: on a copy.
template <typename T>
void GlooCommunicator::ReduceScatterOf(const Operation& operation) {
  const auto total = static_cast<size_t>(operation.count * size());
  T* const copy = Scratch<T>(total);
  std::memcpy(scratch_.data(), operation.input, total * sizeof(T));
  const std::vector<int> counts(static_cast<size_t>(size()), static_cast<int>(operation.count));
  gloo::ReduceScatterHalvingDoubling<T> algorithm(context_, {copy}, static_cast<int>(total), counts,
                                                  OldFunctionOf<T>(operation.reduce_op));
  algorithm.run();
  std::memcpy(operation.output, scratch_.data(), static_cast<size_t>(operation.count) * sizeof(T));
}

Status GlooCommunicator::Reduction(const Call& call) {
  const Operation& operation = *call.operation;
  if (operation.reduce_op == ReduceOp::kAvg) return UnimplementedError("gloo has no avg");
  return ForType(operation.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (operation.kind) {
      case OpKind::kAllReduce:
        AllReduceOf<T>(call);
        return OkStatus();
      case OpKind::kReduce:
        ReduceOf<T>(call);
        return OkStatus();
      case OpKind::kReduceScatter:
        ReduceScatterOf<T>(operation);
        return OkStatus();
      default:
        return UnimplementedError("gloo has no ", Name(operation.kind));
    }
  });
}

void GlooCommunicator::AllGatherVOf(const Call& call) {
  const Operation& operation = *call.operation;
  const auto element_bytes = static_cast<size_t>(ByteSize(operation.dtype));
  std::vector<size_t> counts;
  for (const int64_t count : operation.recv_counts) {
    counts.push_back(static_cast<size_t>(count) * element_bytes);
  }
  gloo::AllgathervOptions options(context_);
  options.setInput(reinterpret_cast<uint8_t*>(Bytes(operation.input)),
                   counts[static_cast<size_t>(rank())]);
  options.setOutput(static_cast<uint8_t*>(operation.output), counts);
  SetCall(&options, call);
  gloo::allgatherv(options);
}

void GlooCommunicator::AllToAllVOf(const Call& call) {
  const Operation& operation = *call.operation;
  const int64_t element_bytes = ByteSize(operation.dtype);
  const auto scaled = [element_bytes](std::span<const int64_t> counts) {
    std::vector<int64_t> bytes(counts.begin(), counts.end());
    for (int64_t& b : bytes) b *= element_bytes;
    return bytes;
  };
  gloo::AlltoallvOptions options(context_);
  options.setInput(reinterpret_cast<uint8_t*>(Bytes(operation.input)),
                   scaled(operation.send_counts));
  options.setOutput(static_cast<uint8_t*>(operation.output), scaled(operation.recv_counts));
  SetCall(&options, call);
  gloo::alltoallv(options);
}

void GlooCommunicator::ScatterOf(const Call& call) {
  const Operation& operation = *call.operation;
  const auto bytes = static_cast<size_t>(operation.count * ByteSize(operation.dtype));
  gloo::ScatterOptions options(context_);
  if (rank() == operation.root_or_peer) {
    std::vector<uint8_t*> parts;
    for (int r = 0; r < size(); ++r) {
      parts.push_back(reinterpret_cast<uint8_t*>(Bytes(operation.input)) +
                      bytes * static_cast<size_t>(r));
    }
    options.setInputs(parts, bytes);
  }
  options.setOutput(static_cast<uint8_t*>(operation.output), bytes);
  options.setRoot(operation.root_or_peer);
  SetCall(&options, call);
  gloo::scatter(options);
}

Status GlooCommunicator::Exchange(const Call& call) {
  const std::span<const Operation> members = call.operation->kind == OpKind::kGroup
                                                 ? call.members
                                                 : std::span<const Operation>(call.operation, 1);
  constexpr uint64_t kSlot = uint64_t{0x7f} << 56;
  const auto timeout = Milliseconds(static_cast<int64_t>(call.timeout_s * 1e3));
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers;
  for (const Operation& member : members) {
    const int peer = member.root_or_peer;
    if (peer == rank()) return UnimplementedError("gloo has no message to oneself");
    const bool is_send = member.kind == OpKind::kSend;
    buffers.push_back(
        context_->createUnboundBuffer(is_send ? Bytes(member.input) : Bytes(member.output),
                                      static_cast<size_t>(member.count * ByteSize(member.dtype))));
    const auto p = static_cast<size_t>(peer);
    if (is_send) {
      buffers.back()->send(peer, kSlot | sends_[p]++);
    } else {
      buffers.back()->recv(peer, kSlot | recvs_[p]++);
    }
  }
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].kind == OpKind::kSend) {
      buffers[i]->waitSend(timeout);
    } else {
      buffers[i]->waitRecv(timeout);
    }
  }
  return OkStatus();
}

Status GlooCommunicator::Run(const Call& call) {
  const Operation& operation = *call.operation;
  const auto bytes = static_cast<size_t>(operation.count * ByteSize(operation.dtype));
  auto* const input = reinterpret_cast<uint8_t*>(Bytes(operation.input));
  auto* const output = static_cast<uint8_t*>(operation.output);
  const auto n = static_cast<size_t>(size());
  switch (operation.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
    case OpKind::kReduceScatterV:
      return Reduction(call);
    case OpKind::kBroadcast: {
      gloo::BroadcastOptions options(context_);
      options.setOutput(output, bytes);
      options.setRoot(operation.root_or_peer);
      SetCall(&options, call);
      gloo::broadcast(options);
      return OkStatus();
    }
    case OpKind::kAllGather: {
      gloo::AllgatherOptions options(context_);
      if (!InPlace(operation, rank())) options.setInput(input, bytes);
      options.setOutput(output, bytes * n);
      SetCall(&options, call);
      gloo::allgather(options);
      return OkStatus();
    }
    case OpKind::kAllGatherV:
      if (!operation.recv_displacements.empty()) {
        return UnimplementedError("gloo has no displacements");
      }
      AllGatherVOf(call);
      return OkStatus();
    case OpKind::kAllToAll: {
      if (input == output) return UnimplementedError("gloo has no all_to_all in place");
      gloo::AlltoallOptions options(context_);
      options.setInput(input, bytes * n);
      options.setOutput(output, bytes * n);
      SetCall(&options, call);
      gloo::alltoall(options);
      return OkStatus();
    }
    case OpKind::kAllToAllV:
      if (!operation.send_displacements.empty() || !operation.recv_displacements.empty()) {
        return UnimplementedError("gloo has no displacements");
      }
      AllToAllVOf(call);
      return OkStatus();
    case OpKind::kGather: {
      gloo::GatherOptions options(context_);
      options.setInput(input, bytes);
      if (rank() == operation.root_or_peer) options.setOutput(output, bytes * n);
      options.setRoot(operation.root_or_peer);
      SetCall(&options, call);
      gloo::gather(options);
      return OkStatus();
    }
    case OpKind::kScatter:
      ScatterOf(call);
      return OkStatus();
    case OpKind::kBarrier: {
      gloo::BarrierOptions options(context_);
      SetCall(&options, call);
      gloo::barrier(options);
      return OkStatus();
    }
    case OpKind::kSend:
    case OpKind::kRecv:
    case OpKind::kGroup:
      return Exchange(call);
  }
  return UnimplementedError("gloo has no ", Name(operation.kind));
}

}  // namespace

const char* Name(GlooAllReduce algorithm) {
  constexpr const char* kNames[kNumGlooAllReduces] = {"ring", "bcube", "halving_doubling"};
  return kNames[static_cast<size_t>(algorithm)];
}

StatusOr<GlooWorld> JoinGlooWorld(const GlooOptions& options) {
  SerialCommunicator::Identity identity = {
      .name = options.name, .rank = options.rank, .timeout_s = options.timeout_s};
  for (int r = 0; r < options.size; ++r) identity.world_ranks.push_back(r);
  try {
    Meeting meeting = {
        .store = std::make_shared<gloo::rendezvous::FileStore>(options.folder),
        .device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"))};
    auto context = Connect(meeting, options.name, options.rank, options.size, options.timeout_s);
    auto world = std::make_unique<GlooCommunicator>(std::move(identity), std::move(meeting),
                                                    std::move(context));
    GlooCommunicator* const raw = world.get();
    return GlooWorld{.communicator = std::move(world),
                     .set_all_reduce = [raw](GlooAllReduce a) { raw->set_all_reduce(a); }};
  } catch (const std::exception& error) {
    return FromException(error);
  }
}

}  // namespace cria::comm

#include "comm/backend/serial_communicator.h"

#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"

namespace cria::comm {
namespace {

// The same on all ranks that agree on the name and the list.
uint64_t GroupId(const SerialCommunicator::Identity& identity) {
  const std::vector<int>& ranks = identity.world_ranks;
  return Hash64({reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(int)},
                Hash64(identity.name));
}

CommErrorKind KindOf(StatusCode code) {
  switch (code) {
    case StatusCode::kDeadlineExceeded:
      return CommErrorKind::kTimeout;
    case StatusCode::kUnavailable:
      return CommErrorKind::kPeerLost;
    case StatusCode::kCancelled:
      return CommErrorKind::kAborted;
    case StatusCode::kInvalidArgument:
      return CommErrorKind::kMismatch;
    default:
      return CommErrorKind::kInternal;
  }
}

}  // namespace

SerialCommunicator::SerialCommunicator(Identity identity)
    : identity_(std::move(identity)),
      group_id_(GroupId(identity_)),
      timeout_s_(identity_.timeout_s) {}

SerialCommunicator::~SerialCommunicator() = default;

std::string_view SerialCommunicator::AlgorithmOf(const Operation& operation) const {
  (void)operation;
  return {};
}

Status SerialCommunicator::MakeError(const Call& call, CommErrorKind kind,
                                     const std::string& reason, int culprit) const {
  const Operation& operation = *call.operation;
  const auto world = [this](int r) {
    return r >= 0 && r < size() ? identity_.world_ranks[static_cast<size_t>(r)] : -1;
  };
  return ToStatus({.kind = kind,
                   .group = name(),
                   .rank = rank(),
                   .world_rank = world(rank()),
                   .culprit = culprit,
                   .culprit_world = world(culprit),
                   .operation = Name(operation.kind),
                   .sequence = call.sequence,
                   .bytes = InputElements(operation, rank(), size()) * ByteSize(operation.dtype),
                   .reason = reason});
}

Status SerialCommunicator::Timeout(const Call& call) const {
  return MakeError(call, CommErrorKind::kTimeout, StrCat("not done after ", call.timeout_s, " s"));
}

void SerialCommunicator::Abort(const std::string& reason) {
  failure_.Fail(ToStatus({.kind = CommErrorKind::kAborted,
                          .group = name(),
                          .rank = rank(),
                          .world_rank = identity_.world_ranks[static_cast<size_t>(rank())],
                          .reason = reason}));
}

Status SerialCommunicator::GroupStart() {
  if (in_group_) {
    return InvalidArgumentError("GroupStart of \"", name(), "\" inside a group");
  }
  in_group_ = true;
  return OkStatus();
}

Work SerialCommunicator::GroupEnd(const CallOptions& call) {
  if (!in_group_) {
    return Work(0, InvalidArgumentError("GroupEnd of \"", name(), "\" without GroupStart"));
  }
  in_group_ = false;
  const Operation operation = {
      .kind = OpKind::kGroup, .timeout_s = call.timeout_s, .async = call.async};
  return Enqueue(operation, std::exchange(group_, {}));
}

Work SerialCommunicator::Submit(const Operation& operation) {
  if (!in_group_) return Enqueue(operation, {});
  if (operation.kind != OpKind::kSend && operation.kind != OpKind::kRecv) {
    return Work(0, MakeError({.operation = &operation}, CommErrorKind::kBadArgument,
                             "only sends and receives go into a group"));
  }
  group_.push_back(operation);
  return Work();
}

Work SerialCommunicator::Enqueue(const Operation& operation, std::vector<Operation> members) {
  if (failure_.failed()) return Work(0, failure_.status());
  const uint64_t sequence = ++sequence_;
  const double timeout_s = operation.timeout_s > 0 ? operation.timeout_s : this->timeout_s();
  if (identity_.observer != nullptr) identity_.observer->OnEnqueue(EventOf(operation, sequence));
  if (!operation.async && !thread_.joinable()) {
    return Work(sequence, RunCall(operation, members, sequence, timeout_s));
  }
  auto pending = std::make_unique<Pending>(operation);
  pending->members = std::move(members);
  pending->sequence = sequence;
  pending->timeout_s = timeout_s;
  const Work work(sequence, pending->state);
  {
    MutexLock lock(&mu_);
    queue_.push_back(std::move(pending));
    changed_.NotifyAll();
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { RunQueue(); });
  // A finished Work does not hold the queue's state.
  return operation.async ? work : Work(sequence, work.Wait());
}

void SerialCommunicator::RunQueue() {
  constexpr double kSliceSeconds = 3600;
  while (true) {
    std::unique_ptr<Pending> next;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) changed_.WaitFor(&mu_, kSliceSeconds);
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next->state->Finish(
        RunCall(next->owned.operation, next->members, next->sequence, next->timeout_s));
  }
}

void SerialCommunicator::StopQueue() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

Status SerialCommunicator::RunCall(const Operation& operation, std::span<const Operation> members,
                                   uint64_t sequence, double timeout_s) {
  debug::Observer* const observer = identity_.observer;
  if (observer != nullptr) observer->OnStart(EventOf(operation, sequence));
  const Call call = {.operation = &operation,
                     .members = members,
                     .sequence = sequence,
                     .deadline_s = RealClock()->MonotonicSeconds() + timeout_s,
                     .timeout_s = timeout_s};
  const Status status = failure_.failed() ? failure_.status() : Finished(call, Execute(call));
  if (observer != nullptr) observer->OnEnd(EventOf(operation, sequence), status);
  return status;
}

Status SerialCommunicator::Finished(const Call& call, Status status) {
  if (status.ok()) return status;
  if (status.code() == StatusCode::kUnimplemented) {
    return Annotate(status, StrCat(Name(call.operation->kind), " #", call.sequence));
  }
  auto error = GetCommError(status);
  if (!error) {
    status = MakeError(call, KindOf(status.code()), Message(status));
    error = GetCommError(status);
  }
  if (error->kind != CommErrorKind::kBadArgument) {
    failure_.Fail(status);
    return failure_.status();
  }
  return status;
}

debug::OperationEvent SerialCommunicator::EventOf(const Operation& operation,
                                                  uint64_t sequence) const {
  const int64_t element_bytes = ByteSize(operation.dtype);
  const bool has_type = operation.kind != OpKind::kBarrier && operation.kind != OpKind::kGroup;
  return {.group = identity_.name,
          .group_id = group_id_,
          .rank = rank(),
          .group_size = size(),
          .sequence = sequence,
          .operation = Name(operation.kind),
          .dtype = has_type ? Name(operation.dtype) : "",
          .algorithm = AlgorithmOf(operation),
          .count = operation.count,
          .input_bytes = InputElements(operation, rank(), size()) * element_bytes,
          .output_bytes = OutputElements(operation, rank(), size()) * element_bytes,
          .peer = operation.root_or_peer};
}

}  // namespace cria::comm

#include "comm/backend/serial_communicator.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/str.h"
#include "comm/engine/group_id.h"

namespace cria::comm {
namespace {

uint64_t IdOf(const SerialCommunicator::Identity& identity) {
  if (identity.id != 0) return identity.id;
  return GroupId({.name = identity.name, .world_ranks = identity.world_ranks});
}

bool IsTransfer(OpKind kind) {
  return kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kGroup;
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
      group_id_(IdOf(identity_)),
      timeout_s_(identity_.timeout_s),
      queue_(std::make_unique<WorkQueue>(identity_.observer, group_id_)) {}

SerialCommunicator::~SerialCommunicator() = default;

std::string_view SerialCommunicator::AlgorithmOf(const Operation& operation) {
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
                          .culprit = rank(),
                          .culprit_world = identity_.world_ranks[static_cast<size_t>(rank())],
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
  Call call = {.operation = &operation,
               .members = members,
               .sequence = IsTransfer(operation.kind) ? ++num_transfers_ : ++num_collectives_,
               .timeout_s = operation.timeout_s > 0 ? operation.timeout_s : timeout_s()};
  if (identity_.observer != nullptr) identity_.observer->OnEnqueue(EventOf(call, ""));
  if (!operation.async && queue_->idle()) return Work(call.sequence, RunCall(call));
  // What the queue's thread runs outlives this frame.
  auto owned = std::make_shared<const OwnedOperation>(operation);
  const Work work =
      queue_->Push(call.sequence, [this, owned, call, members = std::move(members)]() mutable {
        call.operation = &owned->operation;
        call.members = members;
        return RunCall(call);
      });
  // A finished Work does not hold the queue's state.
  return operation.async ? work : Work(call.sequence, work.Wait());
}

Status SerialCommunicator::RunCall(const Call& queued) {
  Call call = queued;
  call.deadline_s = RealClock()->MonotonicSeconds() + call.timeout_s;
  debug::Observer* const observer = identity_.observer;
  if (observer != nullptr) observer->OnStart(EventOf(call, AlgorithmOf(*call.operation)));
  const Status status = failure_.failed() ? failure_.status() : Finished(call, Execute(call));
  if (observer != nullptr) observer->OnEnd(EventOf(call, AlgorithmOf(*call.operation)), status);
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

debug::OperationEvent SerialCommunicator::EventOf(const Call& call,
                                                  std::string_view algorithm) const {
  const Operation& operation = *call.operation;
  const int64_t element_bytes = ByteSize(operation.dtype);
  const bool has_type = operation.kind != OpKind::kBarrier && operation.kind != OpKind::kGroup;
  return {.group = identity_.name,
          .group_id = group_id_,
          .rank = rank(),
          .group_size = size(),
          .sequence = call.sequence,
          .operation = Name(operation.kind),
          .dtype = has_type ? Name(operation.dtype) : "",
          .algorithm = algorithm,
          .count = operation.count,
          .input_bytes = InputElements(operation, rank(), size()) * element_bytes,
          .output_bytes = OutputElements(operation, rank(), size()) * element_bytes,
          .peer = operation.root_or_peer};
}

}  // namespace cria::comm

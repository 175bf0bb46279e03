#include "comm/engine/cria_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/clock.h"
#include "base/str.h"
#include "comm/engine/group_id.h"

namespace cria::comm {
namespace {

bool IsTransfer(OpKind kind) {
  return kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kGroup;
}

int64_t SumOf(std::span<const int64_t> counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  return sum;
}

// What all ranks pass alike: the count, or the sum of the counts.
int64_t CommonCount(const Operation& operation) {
  switch (operation.kind) {
    case OpKind::kAllGatherV:
      return SumOf(operation.recv_counts);
    case OpKind::kReduceScatterV:
      return SumOf(operation.send_counts);
    case OpKind::kAllToAllV:
      return 0;
    default:
      return operation.count;
  }
}

GroupInfo MakeGroupInfo(const Job& job, const CriaCommunicator::Options& options) {
  GroupInfo group{.name = options.name,
                  .id = GroupId({.parent = options.parent_id,
                                 .name = options.name,
                                 .world_ranks = options.world_ranks,
                                 .instance = options.instance}),
                  .world_ranks = options.world_ranks};
  const auto own = std::find(group.world_ranks.begin(), group.world_ranks.end(), job.world_rank);
  CRIA_CHECK(own != group.world_ranks.end());
  group.rank = static_cast<int>(own - group.world_ranks.begin());
  return group;
}

}  // namespace

CriaCommunicator::CriaCommunicator(std::shared_ptr<Job> job, const Options& options)
    : job_(std::move(job)),
      group_(MakeGroupInfo(*job_, options)),
      topology_(TopologyOfGroup(job_->topology, options.world_ranks)),
      local_(group_.world_ranks.size(), false),
      timeout_s_(options.timeout_s),
      plans_(&topology_, &job_->algorithms, group_.rank, job_->tcp_only),
      num_sent_(group_.world_ranks.size(), 0),
      num_received_(group_.world_ranks.size(), 0),
      queue_(std::make_unique<WorkQueue>()) {}

CriaCommunicator::~CriaCommunicator() { queue_.reset(); }

StatusOr<std::unique_ptr<Communicator>> CriaCommunicator::Create(std::shared_ptr<Job> job,
                                                                 Options options) {
  std::unique_ptr<CriaCommunicator> communicator(new CriaCommunicator(std::move(job), options));
  CRIA_RETURN_IF_ERROR(communicator->OpenTransports());
  return std::unique_ptr<Communicator>(std::move(communicator));
}

Status CriaCommunicator::OpenTransports() {
  if (size() == 1) return OkStatus();
  const int host = topology_.host_of_rank[static_cast<size_t>(rank())];
  GroupInfo on_host = group_;
  GroupInfo everywhere = group_;
  for (int r = 0; r < size(); ++r) {
    everywhere.local_ranks.push_back(r);
    local_[static_cast<size_t>(r)] =
        !job_->tcp_only && topology_.host_of_rank[static_cast<size_t>(r)] == host;
    if (local_[static_cast<size_t>(r)]) on_host.local_ranks.push_back(r);
  }
  if (on_host.local_ranks.size() > 1) {
    CRIA_ASSIGN_OR_RETURN(shm_, job_->shm->OpenGroup(on_host, &failure_));
  }
  if (on_host.local_ranks.size() < group_.world_ranks.size()) {
    CRIA_ASSIGN_OR_RETURN(tcp_, job_->tcp->OpenGroup(everywhere, &failure_));
  }
  return OkStatus();
}

CommError CriaCommunicator::ErrorOf(const Operation& operation, uint64_t sequence,
                                    CommErrorKind kind, std::string reason) const {
  return {.kind = kind,
          .group = group_.name,
          .rank = group_.rank,
          .world_rank = job_->world_rank,
          .operation = Name(operation.kind),
          .sequence = sequence,
          .bytes = InputElements(operation, rank(), size()) * ByteSize(operation.dtype),
          .reason = std::move(reason)};
}

debug::OperationEvent CriaCommunicator::EventOf(const Call& call) const {
  const Operation& operation = call.operation;
  const int64_t bytes = ByteSize(operation.dtype);
  return {.group = group_.name,
          .group_id = group_.id,
          .rank = rank(),
          .group_size = size(),
          .sequence = call.sequence,
          .operation = Name(operation.kind),
          .dtype = operation.kind == OpKind::kBarrier ? "" : Name(operation.dtype),
          .algorithm = call.algorithm,
          .count = operation.count,
          .input_bytes = InputElements(operation, rank(), size()) * bytes,
          .output_bytes = OutputElements(operation, rank(), size()) * bytes,
          .peer = operation.root_or_peer};
}

Status CriaCommunicator::Refusal(const Operation& operation) const {
  if (job_->fork_guard.InChild()) {
    return ToStatus(ErrorOf(operation, 0, CommErrorKind::kBadArgument,
                            "this process is a forked child; the communicator is its parent's"));
  }
  if (failure_.failed()) return failure_.status();
  if (in_group_ && !IsTransfer(operation.kind)) {
    return ToStatus(ErrorOf(operation, 0, CommErrorKind::kBadArgument,
                            "a collective between GroupStart and GroupEnd"));
  }
  return OkStatus();
}

Work CriaCommunicator::Submit(const Operation& operation) {
  if (Status refusal = Refusal(operation); !refusal.ok()) return Work(0, std::move(refusal));
  Call call;
  call.operation = operation;
  if (operation.kind == OpKind::kSend) call.sends.push_back(NumberedSend(operation));
  if (operation.kind == OpKind::kRecv) call.recvs.push_back(NumberedRecv(operation));
  if (in_group_) {
    grouped_.sends.insert(grouped_.sends.end(), call.sends.begin(), call.sends.end());
    grouped_.recvs.insert(grouped_.recvs.end(), call.recvs.begin(), call.recvs.end());
    return Work();
  }
  call.sequence = IsTransfer(operation.kind) ? ++num_transfers_ : ++num_collectives_;
  return Start(std::move(call), operation.async);
}

Status CriaCommunicator::GroupStart() {
  if (in_group_) {
    return FailedPreconditionError("rank ", rank(), " of \"", name(),
                                   "\": GroupStart inside a group");
  }
  in_group_ = true;
  grouped_ = Call();
  return OkStatus();
}

Work CriaCommunicator::GroupEnd(const CallOptions& options) {
  if (!in_group_) {
    return Work(0, FailedPreconditionError("rank ", rank(), " of \"", name(),
                                           "\": GroupEnd without GroupStart"));
  }
  in_group_ = false;
  Call call = std::move(grouped_);
  grouped_ = Call();
  call.operation.kind = OpKind::kGroup;
  call.operation.dtype = DataType::kUint8;
  call.operation.timeout_s = options.timeout_s;
  if (Status refusal = Refusal(call.operation); !refusal.ok()) return Work(0, std::move(refusal));
  call.sequence = ++num_transfers_;
  return Start(std::move(call), options.async);
}

Work CriaCommunicator::Start(Call call, bool async) {
  call.timeout_s = call.operation.timeout_s > 0 ? call.operation.timeout_s : timeout_s();
  call.deadline_s = RealClock()->MonotonicSeconds() + call.timeout_s;
  if (job_->observer != nullptr) job_->observer->OnEnqueue(EventOf(call));
  if (!async && queue_->idle()) return Work(call.sequence, Run(call));
  const uint64_t sequence = call.sequence;
  auto owned = std::make_shared<OwnedOperation>(call.operation);
  call.operation = owned->operation;
  Work work = queue_->Push(sequence, [this, owned, call]() mutable { return Run(call); });
  if (!async) work.Wait().IgnoreError();
  return work;
}

Status CriaCommunicator::Run(Call& call) {
  if (job_->observer != nullptr) job_->observer->OnStart(EventOf(call));
  Status status = failure_.failed() ? failure_.status() : RunCall(call);
  if (!status.ok()) {
    failure_.Fail(AsCommError(call, status));
    status = failure_.status();
  }
  if (job_->observer != nullptr) job_->observer->OnEnd(EventOf(call), status);
  return status;
}

Status CriaCommunicator::AsCommError(const Call& call, const Status& status) const {
  if (GetCommError(status).has_value()) return status;
  const bool ours = status.code() != StatusCode::kInvalidArgument;
  return ToStatus(ErrorOf(call.operation, call.sequence,
                          ours ? CommErrorKind::kInternal : CommErrorKind::kBadArgument,
                          Message(status)));
}

Status CriaCommunicator::RunCall(Call& call) {
  if (IsTransfer(call.operation.kind)) return RunTransfers(call);
  if (call.operation.kind == OpKind::kAllToAllV) return RunAllToAllV(call);
  if (size() > 1) return RunCollective(call);
  RunAlone(call.operation);
  return OkStatus();
}

Signature CriaCommunicator::SignatureOf(const Call& call) const {
  const Operation& operation = call.operation;
  return {.group_id = group_.id,
          .sequence = call.sequence,
          .count = CommonCount(operation),
          .input_bytes = InputElements(operation, rank(), size()) * ByteSize(operation.dtype),
          .root = operation.root_or_peer,
          .kind = operation.kind,
          .dtype = operation.dtype,
          .reduce_op = Reduces(operation.kind) ? operation.reduce_op : ReduceOp::kSum};
}

Transport* CriaCommunicator::TransportOf(LinkKind link) const {
  return link == LinkKind::kShm ? shm_.get() : tcp_.get();
}

Status CriaCommunicator::RunCollective(Call& call) {
  CRIA_ASSIGN_OR_RETURN(const CachedPlan* cached, plans_.Find(call.operation));
  // A barrier moves nothing; nor does a count of zero, yet the ranks must agree that it is zero.
  if (call.operation.kind == OpKind::kBarrier || cached->stretches.empty()) return Agree(call);
  OperationContext context = ContextOf(call, cached->plan);
  CRIA_RETURN_IF_ERROR(PrepareSlots(call, cached->plan, &context));
  return RunStretches(*cached, &context);
}

Status CriaCommunicator::Agree(Call& call) {
  Operation barrier;
  barrier.dtype = DataType::kUint8;
  CRIA_ASSIGN_OR_RETURN(const CachedPlan* cached, plans_.Find(barrier));
  OperationContext context = ContextOf(call, cached->plan);
  std::byte input{0}, output{0};
  context.slots[static_cast<size_t>(Slot::kInput)] = &input;
  context.slots[static_cast<size_t>(Slot::kOutput)] = &output;
  CRIA_RETURN_IF_ERROR(PrepareScratch(cached->plan, &context));
  return RunStretches(*cached, &context);
}

OperationContext CriaCommunicator::ContextOf(Call& call, const Plan& plan) const {
  call.algorithm = Name(plan.algorithm);
  OperationContext context{.operation = &call.operation,
                           .signature = SignatureOf(call),
                           .plan = &plan,
                           .deadline_s = call.deadline_s,
                           .timeout_s = call.timeout_s,
                           .on_step = job_->step_hook ? &job_->step_hook : nullptr};
  context.signature.plan_digest = plan.digest;
  context.signature.algorithm = plan.algorithm;
  return context;
}

Status CriaCommunicator::RunStretches(const CachedPlan& cached, OperationContext* context) {
  for (const Stretch& stretch : cached.stretches) {
    Transport* transport = TransportOf(stretch.link);
    CRIA_CHECK(transport != nullptr);
    CRIA_RETURN_IF_ERROR(transport->Run(*context, stretch.rounds));
    ++context->signature.phase;
  }
  return OkStatus();
}

Status CriaCommunicator::PrepareScratch(const Plan& plan, OperationContext* context) {
  if (plan.scratch_elements == 0) return OkStatus();
  CRIA_ASSIGN_OR_RETURN(context->slots[static_cast<size_t>(Slot::kScratch)],
                        Scratch(plan.scratch_elements * SlotElementBytes(plan, Slot::kScratch)));
  return OkStatus();
}

Status CriaCommunicator::PrepareSlots(const Call& call, const Plan& plan,
                                      OperationContext* context) {
  const Operation& operation = call.operation;
  const auto slot = [context](Slot which) -> std::byte*& {
    return context->slots[static_cast<size_t>(which)];
  };
  CRIA_RETURN_IF_ERROR(PrepareScratch(plan, context));
  slot(Slot::kInput) = static_cast<std::byte*>(const_cast<void*>(operation.input));
  slot(Slot::kOutput) = static_cast<std::byte*>(operation.output);
  if (operation.kind != OpKind::kAllToAll || operation.input != operation.output) {
    return OkStatus();
  }
  // In place, what comes in would overwrite what is still to go out.
  const int64_t bytes = operation.count * size() * ByteSize(operation.dtype);
  if (in_place_copy_ == nullptr || in_place_copy_->bytes() < bytes) {
    in_place_copy_.reset();
    CRIA_ASSIGN_OR_RETURN(in_place_copy_, Allocate(bytes));
  }
  std::memcpy(in_place_copy_->data(), operation.input, static_cast<size_t>(bytes));
  slot(Slot::kInput) = static_cast<std::byte*>(in_place_copy_->data());
  return OkStatus();
}

StatusOr<std::byte*> CriaCommunicator::Scratch(int64_t bytes) {
  if (scratch_ == nullptr || scratch_->bytes() < bytes) {
    scratch_.reset();
    CRIA_ASSIGN_OR_RETURN(scratch_, Allocate(bytes));
  }
  return static_cast<std::byte*>(scratch_->data());
}

StatusOr<std::unique_ptr<SharedBuffer>> CriaCommunicator::Allocate(int64_t bytes) {
  if (bytes < 0) return InvalidArgumentError("a buffer of ", bytes, " bytes");
  if (job_->shm == nullptr) return Communicator::Allocate(bytes);
  return job_->shm->Allocate(bytes);
}

Transfer CriaCommunicator::NumberedSend(const Operation& operation) {
  return {.peer = operation.root_or_peer,
          .data = static_cast<std::byte*>(const_cast<void*>(operation.input)),
          .bytes = operation.count * ByteSize(operation.dtype),
          .number = ++num_sent_[static_cast<size_t>(operation.root_or_peer)]};
}

Transfer CriaCommunicator::NumberedRecv(const Operation& operation) {
  return {.peer = operation.root_or_peer,
          .data = static_cast<std::byte*>(operation.output),
          .bytes = operation.count * ByteSize(operation.dtype),
          .number = ++num_received_[static_cast<size_t>(operation.root_or_peer)]};
}

Status CriaCommunicator::MoveOwnTransfers(const Call& call) {
  std::vector<const Transfer*> own;
  for (const Transfer& send : call.sends) {
    if (send.peer == rank()) own.push_back(&send);
  }
  size_t next = 0;
  for (const Transfer& recv : call.recvs) {
    if (recv.peer != rank()) continue;
    const Transfer* send = next < own.size() ? own[next++] : nullptr;
    if (send == nullptr || send->bytes != recv.bytes) {
      return ToStatus(ErrorOf(call.operation, call.sequence, CommErrorKind::kMismatch,
                              StrCat("a receive of ", recv.bytes, " bytes from this rank itself, ",
                                     send == nullptr ? "which sends nothing in the same group"
                                                     : StrCat("which sends ", send->bytes))));
    }
    if (recv.bytes > 0) std::memmove(recv.data, send->data, static_cast<size_t>(recv.bytes));
  }
  if (next == own.size()) return OkStatus();
  return ToStatus(ErrorOf(call.operation, call.sequence, CommErrorKind::kMismatch,
                          StrCat("a send of ", own[next]->bytes,
                                 " bytes to this rank itself, which receives nothing in the same "
                                 "group")));
}

Status CriaCommunicator::RunTransfers(const Call& call) {
  CRIA_RETURN_IF_ERROR(MoveOwnTransfers(call));
  const OperationContext context{.operation = &call.operation,
                                 .signature = SignatureOf(call),
                                 .deadline_s = call.deadline_s,
                                 .timeout_s = call.timeout_s,
                                 .on_step = job_->step_hook ? &job_->step_hook : nullptr};
  // Shared memory first, on every rank: those transfers wait for nothing that comes after them.
  for (const LinkKind link : {LinkKind::kShm, LinkKind::kTcp}) {
    const auto reached = [this, link](const Transfer& transfer) {
      return transfer.peer != rank() &&
             local_[static_cast<size_t>(transfer.peer)] == (link == LinkKind::kShm);
    };
    std::vector<Transfer> sends, recvs;
    std::copy_if(call.sends.begin(), call.sends.end(), std::back_inserter(sends), reached);
    std::copy_if(call.recvs.begin(), call.recvs.end(), std::back_inserter(recvs), reached);
    if (sends.empty() && recvs.empty()) continue;
    CRIA_RETURN_IF_ERROR(TransportOf(link)->Exchange(context, sends, recvs));
  }
  return OkStatus();
}

Status CriaCommunicator::RunAllToAllV(Call& call) {
  // The ranks agree that it is this operation, then each pair on its bytes.
  if (size() > 1) CRIA_RETURN_IF_ERROR(Agree(call));
  const Operation& operation = call.operation;
  const int64_t element_bytes = ByteSize(operation.dtype);
  Call parts = call;
  int64_t send_end = 0, recv_end = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const auto p = static_cast<size_t>(peer);
    const int64_t send_at =
        operation.send_displacements.empty() ? send_end : operation.send_displacements[p];
    const int64_t recv_at =
        operation.recv_displacements.empty() ? recv_end : operation.recv_displacements[p];
    send_end = send_at + operation.send_counts[p];
    recv_end = recv_at + operation.recv_counts[p];
    Operation part{.dtype = operation.dtype, .root_or_peer = peer};
    part.input = static_cast<const std::byte*>(operation.input) + send_at * element_bytes;
    part.count = operation.send_counts[p];
    parts.sends.push_back(NumberedSend(part));
    part.output = static_cast<std::byte*>(operation.output) + recv_at * element_bytes;
    part.count = operation.recv_counts[p];
    parts.recvs.push_back(NumberedRecv(part));
  }
  return RunTransfers(parts);
}

void CriaCommunicator::RunAlone(const Operation& operation) {
  const int64_t element_bytes = ByteSize(operation.dtype);
  const auto at = [element_bytes](std::span<const int64_t> displacements) {
    return displacements.empty() ? 0 : displacements[0] * element_bytes;
  };
  int64_t count = operation.count;
  if (operation.kind == OpKind::kAllGatherV) count = operation.recv_counts[0];
  if (operation.kind == OpKind::kReduceScatterV) count = operation.send_counts[0];
  if (count == 0) return;
  const auto* from =
      static_cast<const std::byte*>(operation.input) + at(operation.send_displacements);
  auto* to = static_cast<std::byte*>(operation.output) + at(operation.recv_displacements);
  if (to != from) std::memmove(to, from, static_cast<size_t>(count * element_bytes));
}

StatusOr<std::unique_ptr<Communicator>> CriaCommunicator::NewGroup(const NewGroupOptions& options) {
  std::vector<int> world_ranks;
  std::vector<bool> seen(group_.world_ranks.size(), false);
  for (const int r : options.ranks) {
    if (r < 0 || r >= size() || seen[static_cast<size_t>(r)]) {
      return InvalidArgumentError(
          "group \"", options.name, "\" of \"", name(), "\": rank ", r,
          r < 0 || r >= size() ? StrCat(" is none of ", size()) : std::string(" stands twice"));
    }
    seen[static_cast<size_t>(r)] = true;
    world_ranks.push_back(group_.world_ranks[static_cast<size_t>(r)]);
  }
  if (!seen[static_cast<size_t>(rank())]) {
    return InvalidArgumentError("group \"", options.name, "\" of \"", name(), "\": rank ", rank(),
                                " makes it and is not in its list");
  }
  const uint64_t instance = instances_[{options.name, world_ranks}]++;
  return Create(job_, {.name = options.name,
                       .world_ranks = std::move(world_ranks),
                       .parent_id = group_.id,
                       .instance = instance,
                       .timeout_s = timeout_s()});
}

void CriaCommunicator::Abort(const std::string& reason) {
  failure_.Fail(ToStatus({.kind = CommErrorKind::kAborted,
                          .group = group_.name,
                          .rank = group_.rank,
                          .world_rank = job_->world_rank,
                          .culprit = group_.rank,
                          .culprit_world = job_->world_rank,
                          .reason = reason}));
}

}  // namespace cria::comm

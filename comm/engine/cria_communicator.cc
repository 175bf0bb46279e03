#include "comm/engine/cria_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/str.h"
#include "comm/api/error.h"
#include "comm/engine/group_id.h"
#include "comm/engine/own_tasks.h"

namespace cria::comm {
namespace {

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

size_t Index(Slot slot) { return static_cast<size_t>(slot); }

}  // namespace

CriaCommunicator::CriaCommunicator(std::shared_ptr<Job> job, const Options& options,
                                   GroupInfo group)
    : SerialCommunicator({.name = group.name,
                          .rank = group.rank,
                          .world_ranks = group.world_ranks,
                          .timeout_s = options.timeout_s,
                          .observer = job->observer,
                          .id = group.id}),
      job_(std::move(job)),
      group_(std::move(group)),
      topology_(TopologyOfGroup(job_->topology, options.world_ranks)),
      local_(group_.world_ranks.size(), false),
      plans_(&topology_, &job_->algorithms, group_.rank, job_->tcp_only),
      num_sent_(group_.world_ranks.size(), 0),
      num_received_(group_.world_ranks.size(), 0) {}

CriaCommunicator::~CriaCommunicator() { StopQueue(); }

StatusOr<std::unique_ptr<Communicator>> CriaCommunicator::Create(std::shared_ptr<Job> job,
                                                                 const Options& options) {
  GroupInfo group = MakeGroupInfo(*job, options);
  std::unique_ptr<CriaCommunicator> communicator(
      new CriaCommunicator(std::move(job), options, std::move(group)));
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
    CRIA_ASSIGN_OR_RETURN(shm_, job_->shm->OpenGroup(on_host, &failure_state()));
  }
  if (on_host.local_ranks.size() < group_.world_ranks.size()) {
    CRIA_ASSIGN_OR_RETURN(tcp_, job_->tcp->OpenGroup(everywhere, &failure_state()));
    if (shm_ != nullptr) shm_->SetWaitTracker(tcp_->wait_tracker());
  }
  return OkStatus();
}

Status CriaCommunicator::RefuseInChild(const Operation& operation) const {
  if (!job_->fork_guard.InChild()) return OkStatus();
  return MakeError({.operation = &operation}, CommErrorKind::kBadArgument,
                   "this process is a forked child; the communicator is its parent's");
}

Work CriaCommunicator::Submit(const Operation& operation) {
  if (Status refusal = RefuseInChild(operation); !refusal.ok()) return Work(0, refusal);
  return SerialCommunicator::Submit(operation);
}

Work CriaCommunicator::GroupEnd(const CallOptions& call) {
  if (Status refusal = RefuseInChild({.kind = OpKind::kGroup}); !refusal.ok()) {
    return Work(0, refusal);
  }
  return SerialCommunicator::GroupEnd(call);
}

std::string_view CriaCommunicator::AlgorithmOf(const Operation& operation) {
  if (size() == 1) return "";
  switch (operation.kind) {
    case OpKind::kSend:
    case OpKind::kRecv:
    case OpKind::kGroup:
    case OpKind::kAllToAllV:
      return "pairwise";
    default:
      const auto cached = plans_.Find(operation);
      return cached.ok() ? Name((*cached)->plan.algorithm) : "";
  }
}

Status CriaCommunicator::Execute(const Call& call) {
  const Operation& operation = *call.operation;
  switch (operation.kind) {
    case OpKind::kSend:
    case OpKind::kRecv:
    case OpKind::kGroup: {
      Transfers transfers;
      if (operation.kind != OpKind::kGroup) Add(operation, &transfers);
      for (const Operation& member : call.members) Add(member, &transfers);
      return RunTransfers(call, transfers);
    }
    case OpKind::kAllToAllV:
      return RunAllToAllV(call);
    default:
      if (size() > 1) return RunCollective(call);
      RunAlone(operation);
      return OkStatus();
  }
}

Signature CriaCommunicator::SignatureOf(const Call& call) const {
  const Operation& operation = *call.operation;
  return {.group_id = group_.id,
          .sequence = call.sequence,
          .count = CommonCount(operation),
          .input_bytes = InputElements(operation, rank(), size()) * ByteSize(operation.dtype),
          .root = operation.root_or_peer,
          .kind = operation.kind,
          .dtype = operation.dtype,
          .reduce_op = Reduces(operation.kind) ? operation.reduce_op : ReduceOp::kSum};
}

OperationContext CriaCommunicator::ContextOf(const Call& call, const Plan& plan) const {
  OperationContext context{.operation = call.operation,
                           .signature = SignatureOf(call),
                           .plan = &plan,
                           .deadline_s = call.deadline_s,
                           .timeout_s = call.timeout_s,
                           .on_step = job_->step_hook ? &job_->step_hook : nullptr};
  context.signature.plan_digest = plan.digest;
  context.signature.algorithm = plan.algorithm;
  return context;
}

Transport* CriaCommunicator::TransportOf(LinkKind link) const {
  return link == LinkKind::kShm ? shm_.get() : tcp_.get();
}

Status CriaCommunicator::RunCollective(const Call& call) {
  const Operation& operation = *call.operation;
  const StatusOr<const CachedPlan*> found = plans_.Find(operation);
  if (!found.ok()) {  // the same on all ranks: nothing was sent, nothing is broken
    return MakeError(call, CommErrorKind::kBadArgument, Message(found.status()));
  }
  const CachedPlan* cached = *found;
  // A barrier moves nothing; nor does a count of zero, yet the ranks must agree that it is zero.
  if (operation.kind == OpKind::kBarrier || CommonCount(operation) == 0) return Agree(call);
  OperationContext context = ContextOf(call, cached->plan);
  CRIA_RETURN_IF_ERROR(PrepareSlots(operation, cached->plan, &context));
  return RunStretches(*cached, &context);
}

Status CriaCommunicator::Agree(const Call& call) {
  CRIA_ASSIGN_OR_RETURN(const CachedPlan* cached,
                        plans_.Find({.kind = OpKind::kBarrier, .dtype = DataType::kUint8}));
  OperationContext context = ContextOf(call, cached->plan);
  std::byte input{0}, output{0};
  context.slots[Index(Slot::kInput)] = &input;
  context.slots[Index(Slot::kOutput)] = &output;
  CRIA_RETURN_IF_ERROR(PrepareScratch(cached->plan, &context));
  return RunStretches(*cached, &context);
}

Status CriaCommunicator::RunStretches(const CachedPlan& cached, OperationContext* context) {
  for (const Stretch& stretch : cached.stretches) {
    Transport* transport = TransportOf(stretch.link);
    if (transport == nullptr) {  // this rank is alone on its host
      CRIA_CHECK(stretch.link == LinkKind::kShm);
      RunOwnTasks(*context, stretch.rounds);
    } else {
      CRIA_RETURN_IF_ERROR(transport->Run(*context, stretch.rounds));
    }
    ++context->signature.phase;
  }
  return OkStatus();
}

Status CriaCommunicator::PrepareScratch(const Plan& plan, OperationContext* context) {
  if (plan.scratch_elements == 0) return OkStatus();
  CRIA_ASSIGN_OR_RETURN(
      context->slots[Index(Slot::kScratch)],
      Grow(&scratch_, plan.scratch_elements * SlotElementBytes(plan, Slot::kScratch)));
  return OkStatus();
}

Status CriaCommunicator::PrepareSlots(const Operation& operation, const Plan& plan,
                                      OperationContext* context) {
  CRIA_RETURN_IF_ERROR(PrepareScratch(plan, context));
  context->slots[Index(Slot::kInput)] = static_cast<std::byte*>(const_cast<void*>(operation.input));
  context->slots[Index(Slot::kOutput)] = static_cast<std::byte*>(operation.output);
  if (operation.kind != OpKind::kAllToAll || operation.input != operation.output) {
    return OkStatus();
  }
  // In place, what comes in would overwrite what is still to go out.
  const int64_t bytes = operation.count * size() * ByteSize(operation.dtype);
  CRIA_ASSIGN_OR_RETURN(std::byte * copy, Grow(&in_place_copy_, bytes));
  std::memcpy(copy, operation.input, static_cast<size_t>(bytes));
  context->slots[Index(Slot::kInput)] = copy;
  return OkStatus();
}

StatusOr<std::byte*> CriaCommunicator::Grow(std::unique_ptr<SharedBuffer>* buffer, int64_t bytes) {
  if (*buffer == nullptr || (*buffer)->bytes() < bytes) {
    buffer->reset();
    CRIA_ASSIGN_OR_RETURN(*buffer, Allocate(bytes));
  }
  return static_cast<std::byte*>((*buffer)->data());
}

StatusOr<std::unique_ptr<SharedBuffer>> CriaCommunicator::Allocate(int64_t bytes) {
  if (bytes < 0) return InvalidArgumentError("a buffer of ", bytes, " bytes");
  return job_->shm->Allocate(bytes);
}

void CriaCommunicator::Add(const Operation& operation, Transfers* transfers) {
  const auto peer = static_cast<size_t>(operation.root_or_peer);
  const bool send = operation.kind == OpKind::kSend;
  const void* data = send ? operation.input : operation.output;
  (send ? transfers->sends : transfers->recvs)
      .push_back({.peer = operation.root_or_peer,
                  .data = static_cast<std::byte*>(const_cast<void*>(data)),
                  .bytes = operation.count * ByteSize(operation.dtype),
                  .number = ++(send ? num_sent_ : num_received_)[peer]});
}

Status CriaCommunicator::MoveOwnTransfers(const Call& call, const Transfers& transfers) {
  std::vector<const Transfer*> own;
  for (const Transfer& send : transfers.sends) {
    if (send.peer == rank()) own.push_back(&send);
  }
  size_t next = 0;
  for (const Transfer& recv : transfers.recvs) {
    if (recv.peer != rank()) continue;
    const Transfer* send = next < own.size() ? own[next++] : nullptr;
    if (send == nullptr || send->bytes != recv.bytes) {
      const std::string sent = send == nullptr ? "which sends nothing in the same group"
                                               : StrCat("which sends ", send->bytes);
      return MakeError(call, CommErrorKind::kMismatch,
                       StrCat("a receive of ", recv.bytes, " bytes from this rank itself, ", sent),
                       rank());
    }
    if (recv.bytes > 0) std::memmove(recv.data, send->data, static_cast<size_t>(recv.bytes));
  }
  if (next == own.size()) return OkStatus();
  return MakeError(call, CommErrorKind::kMismatch,
                   StrCat("a send of ", own[next]->bytes,
                          " bytes to this rank itself, which receives nothing in the same group"),
                   rank());
}

Status CriaCommunicator::RunTransfers(const Call& call, const Transfers& transfers) {
  CRIA_RETURN_IF_ERROR(MoveOwnTransfers(call, transfers));
  const OperationContext context{.operation = call.operation,
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
    std::copy_if(transfers.sends.begin(), transfers.sends.end(), std::back_inserter(sends),
                 reached);
    std::copy_if(transfers.recvs.begin(), transfers.recvs.end(), std::back_inserter(recvs),
                 reached);
    if (sends.empty() && recvs.empty()) continue;
    CRIA_RETURN_IF_ERROR(TransportOf(link)->Exchange(context, sends, recvs));
  }
  return OkStatus();
}

Status CriaCommunicator::RunAllToAllV(const Call& call) {
  // The ranks agree that it is this operation, then each pair on its bytes.
  if (size() > 1) CRIA_RETURN_IF_ERROR(Agree(call));
  const Operation& operation = *call.operation;
  const int64_t element_bytes = ByteSize(operation.dtype);
  Transfers transfers;
  int64_t send_end = 0, recv_end = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const auto p = static_cast<size_t>(peer);
    const int64_t send_at =
        operation.send_displacements.empty() ? send_end : operation.send_displacements[p];
    const int64_t recv_at =
        operation.recv_displacements.empty() ? recv_end : operation.recv_displacements[p];
    send_end = send_at + operation.send_counts[p];
    recv_end = recv_at + operation.recv_counts[p];
    Operation part{.kind = OpKind::kSend, .dtype = operation.dtype, .root_or_peer = peer};
    part.input = static_cast<const std::byte*>(operation.input) + send_at * element_bytes;
    part.count = operation.send_counts[p];
    Add(part, &transfers);
    part.kind = OpKind::kRecv;
    part.output = static_cast<std::byte*>(operation.output) + recv_at * element_bytes;
    part.count = operation.recv_counts[p];
    Add(part, &transfers);
  }
  return RunTransfers(call, transfers);
}

void CriaCommunicator::RunAlone(const Operation& operation) {
  int64_t count = operation.count;
  int64_t at = 0;  // of the output, in elements
  if (operation.kind == OpKind::kReduceScatterV) count = operation.send_counts[0];
  if (operation.kind == OpKind::kAllGatherV) {
    count = operation.recv_counts[0];
    if (!operation.recv_displacements.empty()) at = operation.recv_displacements[0];
  }
  const int64_t element_bytes = ByteSize(operation.dtype);
  auto* to = static_cast<std::byte*>(operation.output) + at * element_bytes;
  if (count == 0 || to == operation.input) return;
  std::memmove(to, operation.input, static_cast<size_t>(count * element_bytes));
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

}  // namespace cria::comm

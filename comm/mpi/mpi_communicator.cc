#include "comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "comm/api/error.h"
#include "comm/backend/serial_communicator.h"
#include "comm/engine/transport.h"
#include "comm/mpi/mpi_port.h"
#include "comm/mpi/mpi_reduction.h"

namespace cria::comm {
namespace {

// Elements that are converted, reduced and converted back at a time.
constexpr int64_t kStageElements = int64_t{1} << 20;

// Channels of point-to-point messages.
constexpr int kDataChannel = 0;
constexpr int kSendHeaderChannel = 1;
constexpr int kRecvHeaderChannel = 2;

std::byte* At(void* p, int64_t offset) { return static_cast<std::byte*>(p) + offset; }
const std::byte* At(const void* p, int64_t offset) {
  return static_cast<const std::byte*>(p) + offset;
}

std::vector<int64_t> Scaled(std::span<const int64_t> values, int64_t factor) {
  std::vector<int64_t> scaled(values.begin(), values.end());
  for (int64_t& value : scaled) value *= factor;
  return scaled;
}

// The displacements, in bytes; made of the counts where there are none.
std::vector<int64_t> PlacesOf(std::span<const int64_t> counts,
                              std::span<const int64_t> displacements, int64_t element_bytes) {
  if (!displacements.empty()) return Scaled(displacements, element_bytes);
  std::vector<int64_t> places(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), int64_t{0});
  return Scaled(places, element_bytes);
}

int64_t Sum(std::span<const int64_t> values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

bool IsPointToPoint(OpKind kind) {
  return kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kGroup;
}

class MpiCommunicator : public SerialCommunicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, const MpiOptions& options, Identity identity,
                  std::unique_ptr<MpiPort> port)
      : SerialCommunicator(std::move(identity)),
        runtime_(std::move(runtime)),
        options_(options),
        is_world_(port != nullptr),
        port_(std::move(port)) {
    listener_ = failure_state().AddListener([this](const Status& error) { TellPeers(error); });
  }
  ~MpiCommunicator() override;

  const char* backend() const override { return "mpi"; }
  StatusOr<std::unique_ptr<Communicator>> NewGroup(const NewGroupOptions& options) override;

 protected:
  Work Submit(const Operation& operation) override;
  Status Execute(const Call& call) override;

 private:
  MpiWait WaitOf(const Call& call);
  Status Open(const Call& call);
  Status AgreeOn(const Call& call, const MpiWait& wait);
  Status AgreeOnPairs(const Call& call, const MpiWait& wait);
  Status RunCollective(const Operation& operation, const MpiWait& wait);
  Status AllReduceOp(const Operation& operation, const MpiWait& wait);
  Status ReduceOpTo(const Operation& operation, const MpiWait& wait);
  Status ReduceScatterOp(const Operation& operation, std::span<const int64_t> counts,
                         const MpiWait& wait);
  Status AllToAllVOp(const Operation& operation, const MpiWait& wait);
  Status ExchangeOp(const Call& call, std::span<const Operation> members, const MpiWait& wait);
  Status ExchangeHeaders(const Call& call, std::span<const MpiMessage> sends,
                         std::span<const MpiMessage> recvs, const MpiWait& wait);
  void TellPeers(const Status& error);
  void HearPeers();

  const std::shared_ptr<MpiRuntime> runtime_;
  const MpiOptions options_;
  const bool is_world_;
  int listener_ = 0;
  // Guards the making of port_ against TellPeers from another thread.
  Mutex port_mu_;
  std::unique_ptr<MpiPort> port_;
  std::atomic<bool> heard_{false};  // the failure is a peer's, which tells everybody itself
  // Of blocking calls: for the operations that are made of messages all the same.
  const MpiWait endless_ = {.deadline_s = std::numeric_limits<double>::infinity(),
                            .failure = &failure_state(),
                            .listen = {}};
  std::vector<std::byte> stage_;
  std::vector<std::byte> stage_out_;
};

MpiCommunicator::~MpiCommunicator() {
  StopQueue();
  if (is_world_ && !failure_state().failed() && !options_.blocking) {
    // MPI_Finalize waits for all ranks without a deadline: they meet here first.
    const double end_s = RealClock()->MonotonicSeconds() + timeout_s();
    const MpiWait wait = {
        .deadline_s = end_s, .failure = &failure_state(), .listen = [this] { HearPeers(); }};
    const Status status = port_->Barrier(wait);
    if (!status.ok()) {
      LogWarning("leaving \"", name(), "\": ", Message(status), "; MPI_Finalize is left out");
      failure_state().Fail(status);
    }
  }
  failure_state().RemoveListener(listener_);
  if (failure_state().failed()) {
    runtime_->MarkBroken();
    port_.release();  // MPI may still be at work on it
  }
}

MpiWait MpiCommunicator::WaitOf(const Call& call) {
  return {.deadline_s = call.deadline_s, .failure = &failure_state(), .listen = [this] {
            HearPeers();
          }};
}

// The failure of this rank, as a note to the others: kind, culprit, reason.
void MpiCommunicator::TellPeers(const Status& error) {
  if (heard_.load() || !runtime_->multiple_threads()) return;
  MutexLock lock(&port_mu_);
  const auto what = GetCommError(error);
  if (port_ == nullptr || !what) return;
  port_->Tell(StrCat(static_cast<int>(what->kind), " ", what->culprit, " ", what->reason));
}

void MpiCommunicator::HearPeers() {
  if (port_ == nullptr) return;
  const auto note = port_->Hear();
  if (!note) return;
  const char* const end = note->text.data() + note->text.size();
  int kind = 0;
  int culprit = -1;
  auto parsed = std::from_chars(note->text.data(), end, kind);
  if (parsed.ptr != end) parsed = std::from_chars(parsed.ptr + 1, end, culprit);
  const char* const reason = parsed.ptr == end ? end : parsed.ptr + 1;
  if (kind < 0 || kind > static_cast<int>(CommErrorKind::kInternal)) kind = 0;
  if (culprit < 0 || culprit >= size()) culprit = note->rank;
  const auto world = [this](int r) { return world_ranks()[static_cast<size_t>(r)]; };
  heard_.store(true);
  failure_state().Fail(ToStatus(
      {.kind = static_cast<CommErrorKind>(kind),
       .group = name(),
       .rank = rank(),
       .world_rank = world(rank()),
       .culprit = culprit,
       .culprit_world = world(culprit),
       .reason = StrCat("rank ", note->rank,
                        " says: ", std::string_view(reason, static_cast<size_t>(end - reason)))}));
}

StatusOr<std::unique_ptr<Communicator>> MpiCommunicator::NewGroup(const NewGroupOptions& options) {
  Identity identity = this->identity();
  identity.name = options.name;
  identity.timeout_s = timeout_s();
  identity.rank = -1;
  identity.world_ranks.clear();
  std::vector<bool> seen(static_cast<size_t>(size()), false);
  for (const int r : options.ranks) {
    if (r < 0 || r >= size() || seen[static_cast<size_t>(r)]) {
      return InvalidArgumentError("group \"", options.name, "\" of \"", name(), "\": rank ", r,
                                  r < 0 || r >= size() ? " does not exist" : " is there twice");
    }
    seen[static_cast<size_t>(r)] = true;
    if (r == rank()) identity.rank = static_cast<int>(identity.world_ranks.size());
    identity.world_ranks.push_back(world_ranks()[static_cast<size_t>(r)]);
  }
  if (identity.rank < 0) {
    return InvalidArgumentError("group \"", options.name, "\" of \"", name(),
                                "\" is without this rank, ", rank());
  }
  return std::unique_ptr<Communicator>(
      std::make_unique<MpiCommunicator>(runtime_, options_, std::move(identity), nullptr));
}

// Measuring MPI itself, nothing stands before it: no clock, no number, no observer.
Work MpiCommunicator::Submit(const Operation& operation) {
  const bool direct = options_.blocking && !operation.async && port_ != nullptr &&
                      !IsPointToPoint(operation.kind) && identity().observer == nullptr &&
                      !failure_state().failed();
  if (!direct) return SerialCommunicator::Submit(operation);
  Status status = RunCollective(operation, endless_);
  if (!status.ok()) failure_state().Fail(status);
  return Work(0, std::move(status));
}

Status MpiCommunicator::Open(const Call& call) {
  if (port_ != nullptr) return OkStatus();
  CRIA_ASSIGN_OR_RETURN(auto port, MpiPort::CreateGroup(runtime_, options_.blocking, world_ranks(),
                                                        group_id(), WaitOf(call)));
  MutexLock lock(&port_mu_);
  port_ = std::move(port);
  return OkStatus();
}

Status MpiCommunicator::Execute(const Call& call) {
  CRIA_RETURN_IF_ERROR(Open(call));
  const MpiWait wait = WaitOf(call);
  const Operation& operation = *call.operation;
  Status status;
  if (IsPointToPoint(operation.kind)) {
    const std::span<const Operation> one(&operation, 1);
    status = ExchangeOp(call, operation.kind == OpKind::kGroup ? call.members : one, wait);
  } else {
    if (options_.checked) CRIA_RETURN_IF_ERROR(AgreeOn(call, wait));
    status = RunCollective(operation, wait);
  }
  return status.code() == StatusCode::kDeadlineExceeded && !GetCommError(status) ? Timeout(call)
                                                                                 : status;
}

// All ranks show what they are about to run; who runs something else is the culprit.
Status MpiCommunicator::AgreeOn(const Call& call, const MpiWait& wait) {
  const Operation& operation = *call.operation;
  Signature mine = {.group_id = group_id(),
                    .sequence = call.sequence,
                    .count = operation.count,
                    .root = operation.root_or_peer,
                    .kind = operation.kind,
                    .dtype = operation.dtype};
  mine.input_bytes = InputElements(operation, rank(), size()) * ByteSize(operation.dtype);
  if (Reduces(operation.kind)) mine.reduce_op = operation.reduce_op;
  const std::span<const int64_t> counts =
      operation.kind == OpKind::kReduceScatterV ? operation.send_counts : operation.recv_counts;
  if (operation.kind == OpKind::kReduceScatterV || operation.kind == OpKind::kAllGatherV) {
    mine.count = Sum(counts);
    mine.plan_digest = Hash64({reinterpret_cast<const char*>(counts.data()), counts.size_bytes()});
  }
  std::vector<Signature> all(static_cast<size_t>(size()));
  all[static_cast<size_t>(rank())] = mine;
  CRIA_RETURN_IF_ERROR(
      port_->AllGather(&all[static_cast<size_t>(rank())], all.data(), sizeof(Signature), wait));
  GroupInfo group = {
      .name = name(), .id = group_id(), .rank = rank(), .world_ranks = world_ranks()};
  for (int r = 0; r < size(); ++r) {
    if (cria::comm::Agree(mine, all[static_cast<size_t>(r)])) continue;
    return ToStatus(MismatchError(group, mine, r, all[static_cast<size_t>(r)]));
  }
  return operation.kind == OpKind::kAllToAllV ? AgreeOnPairs(call, wait) : OkStatus();
}

// all_to_all_v: what a rank sends is what the other expects. All ranks learn of a difference, so
// that none waits for one that has left.
Status MpiCommunicator::AgreeOnPairs(const Call& call, const MpiWait& wait) {
  const Operation& operation = *call.operation;
  const auto n = static_cast<size_t>(size());
  std::vector<int64_t> expected(n);  // by the others, of this rank
  CRIA_RETURN_IF_ERROR(
      port_->AllToAll(operation.recv_counts.data(), expected.data(), sizeof(int64_t), wait));
  int32_t differs = -1;
  for (size_t r = 0; r < n; ++r) {
    if (expected[r] != operation.send_counts[r]) differs = static_cast<int32_t>(r);
  }
  std::vector<int32_t> all(n);
  all[static_cast<size_t>(rank())] = differs;
  CRIA_RETURN_IF_ERROR(
      port_->AllGather(&all[static_cast<size_t>(rank())], all.data(), sizeof(int32_t), wait));
  for (size_t r = 0; r < n; ++r) {
    if (all[r] < 0) continue;
    const std::string sizes =
        static_cast<int>(r) == rank()
            ? StrCat(": ", operation.send_counts[static_cast<size_t>(differs)], " and ",
                     expected[static_cast<size_t>(differs)], " elements")
            : "";
    return MakeError(call, CommErrorKind::kMismatch,
                     StrCat("rank ", r, " sends to rank ", all[r], " not what that expects", sizes),
                     static_cast<int>(r) == rank() ? all[r] : static_cast<int>(r));
  }
  return OkStatus();
}

Status MpiCommunicator::RunCollective(const Operation& operation, const MpiWait& wait) {
  const int64_t element_bytes = ByteSize(operation.dtype);
  const int64_t bytes = operation.count * element_bytes;
  const int root = operation.root_or_peer;
  switch (operation.kind) {
    case OpKind::kAllReduce:
      return AllReduceOp(operation, wait);
    case OpKind::kReduce:
      return ReduceOpTo(operation, wait);
    case OpKind::kReduceScatter: {
      const std::vector<int64_t> counts(static_cast<size_t>(size()), operation.count);
      return ReduceScatterOp(operation, counts, wait);
    }
    case OpKind::kReduceScatterV:
      return ReduceScatterOp(operation, operation.send_counts, wait);
    case OpKind::kBroadcast:
      return port_->Broadcast(operation.output, bytes, root, wait);
    case OpKind::kAllGather:
      return port_->AllGather(operation.input, operation.output, bytes, wait);
    case OpKind::kAllGatherV:
      return port_->AllGatherV(
          operation.input, operation.output, Scaled(operation.recv_counts, element_bytes),
          PlacesOf(operation.recv_counts, operation.recv_displacements, element_bytes), wait);
    case OpKind::kGather:
      return port_->Gather(operation.input, operation.output, bytes, root, wait);
    case OpKind::kScatter:
      return port_->Scatter(operation.input, operation.output, bytes, root, wait);
    case OpKind::kAllToAll:
      return port_->AllToAll(operation.input, operation.output, bytes, wait);
    case OpKind::kAllToAllV:
      return AllToAllVOp(operation, wait);
    case OpKind::kBarrier:
      return port_->Barrier(wait);
    case OpKind::kSend:
    case OpKind::kRecv:
    case OpKind::kGroup:
      break;
  }
  return InternalError("no collective: ", Name(operation.kind));
}

Status MpiCommunicator::AllReduceOp(const Operation& operation, const MpiWait& wait) {
  const MpiReduction reduction(
      {.dtype = operation.dtype, .op = operation.reduce_op, .group_size = size()});
  if (!reduction.needed()) {
    return port_->AllReduce(operation.input, operation.output, operation.count, operation.dtype,
                            operation.reduce_op, wait);
  }
  const int64_t wire_bytes = reduction.wire_elements() * ByteSize(reduction.wire_dtype());
  stage_.resize(static_cast<size_t>(std::min(operation.count, kStageElements) * wire_bytes));
  for (int64_t at = 0; at < operation.count; at += kStageElements) {
    const int64_t n = std::min(kStageElements, operation.count - at);
    const int64_t offset = at * ByteSize(operation.dtype);
    reduction.Encode(At(operation.input, offset), n, stage_.data());
    CRIA_RETURN_IF_ERROR(port_->AllReduce(nullptr, stage_.data(), n * reduction.wire_elements(),
                                          reduction.wire_dtype(), reduction.wire_op(), wait));
    reduction.Decode(stage_.data(), n, At(operation.output, offset));
  }
  return OkStatus();
}

Status MpiCommunicator::ReduceOpTo(const Operation& operation, const MpiWait& wait) {
  const int root = operation.root_or_peer;
  const MpiReduction reduction(
      {.dtype = operation.dtype, .op = operation.reduce_op, .group_size = size()});
  if (!reduction.needed()) {
    return port_->Reduce(operation.input, operation.output, operation.count, operation.dtype,
                         operation.reduce_op, root, wait);
  }
  const int64_t wire_bytes = reduction.wire_elements() * ByteSize(reduction.wire_dtype());
  stage_.resize(static_cast<size_t>(std::min(operation.count, kStageElements) * wire_bytes));
  for (int64_t at = 0; at < operation.count; at += kStageElements) {
    const int64_t n = std::min(kStageElements, operation.count - at);
    const int64_t offset = at * ByteSize(operation.dtype);
    reduction.Encode(At(operation.input, offset), n, stage_.data());
    CRIA_RETURN_IF_ERROR(port_->Reduce(stage_.data(), stage_.data(), n * reduction.wire_elements(),
                                       reduction.wire_dtype(), reduction.wire_op(), root, wait));
    if (rank() == root) reduction.Decode(stage_.data(), n, At(operation.output, offset));
  }
  return OkStatus();
}

Status MpiCommunicator::ReduceScatterOp(const Operation& operation, std::span<const int64_t> counts,
                                        const MpiWait& wait) {
  const int64_t element_bytes = ByteSize(operation.dtype);
  const MpiReduction reduction(
      {.dtype = operation.dtype, .op = operation.reduce_op, .group_size = size()});
  const int64_t own = counts[static_cast<size_t>(rank())];
  if (!reduction.needed()) {
    if (!InPlace(operation, rank())) {
      return port_->ReduceScatter(operation.input, operation.output, counts, operation.dtype,
                                  operation.reduce_op, wait);
    }
    stage_out_.resize(static_cast<size_t>(own * element_bytes));
    CRIA_RETURN_IF_ERROR(port_->ReduceScatter(operation.input, stage_out_.data(), counts,
                                              operation.dtype, operation.reduce_op, wait));
    if (own > 0) std::memcpy(operation.output, stage_out_.data(), stage_out_.size());
    return OkStatus();
  }
  // A chunk of every rank's part at a time.
  const std::vector<int64_t> places = PlacesOf(counts, {}, element_bytes);
  const int64_t width = reduction.wire_elements();
  const int64_t wire_bytes = width * ByteSize(reduction.wire_dtype());
  const int64_t longest = *std::max_element(counts.begin(), counts.end());
  const int64_t chunk = std::max<int64_t>(1, kStageElements / size());
  for (int64_t at = 0; at < longest; at += chunk) {
    std::vector<int64_t> parts;
    for (const int64_t count : counts) parts.push_back(std::clamp<int64_t>(count - at, 0, chunk));
    stage_.resize(static_cast<size_t>(Sum(parts) * wire_bytes));
    const int64_t mine = parts[static_cast<size_t>(rank())];
    stage_out_.resize(static_cast<size_t>(std::max<int64_t>(mine, 1) * wire_bytes));
    std::byte* wire = stage_.data();
    for (size_t r = 0; r < parts.size(); ++r) {
      if (parts[r] == 0) continue;
      reduction.Encode(At(operation.input, places[r] + at * element_bytes), parts[r], wire);
      wire += parts[r] * wire_bytes;
    }
    CRIA_RETURN_IF_ERROR(port_->ReduceScatter(stage_.data(), stage_out_.data(),
                                              Scaled(parts, width), reduction.wire_dtype(),
                                              reduction.wire_op(), wait));
    if (mine > 0) {
      reduction.Decode(stage_out_.data(), mine, At(operation.output, at * element_bytes));
    }
  }
  return OkStatus();
}

// From rank to rank: one rank cannot know whether MPI's int counts are enough for all.
Status MpiCommunicator::AllToAllVOp(const Operation& operation, const MpiWait& wait) {
  const int64_t element_bytes = ByteSize(operation.dtype);
  const auto send_places =
      PlacesOf(operation.send_counts, operation.send_displacements, element_bytes);
  const auto recv_places =
      PlacesOf(operation.recv_counts, operation.recv_displacements, element_bytes);
  std::vector<MpiMessage> sends, recvs;
  for (int step = 0; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() - step + size()) % size();
    const auto t = static_cast<size_t>(to);
    const auto f = static_cast<size_t>(from);
    if (operation.send_counts[t] > 0) {
      sends.push_back({to, const_cast<std::byte*>(At(operation.input, send_places[t])),
                       operation.send_counts[t] * element_bytes});
    }
    if (operation.recv_counts[f] > 0) {
      recvs.push_back(
          {from, At(operation.output, recv_places[f]), operation.recv_counts[f] * element_bytes});
    }
  }
  return port_->Exchange(sends, recvs, kDataChannel, wait);
}

Status MpiCommunicator::ExchangeOp(const Call& call, std::span<const Operation> members,
                                   const MpiWait& wait) {
  std::vector<MpiMessage> sends, recvs;
  for (const Operation& member : members) {
    const int64_t bytes = member.count * ByteSize(member.dtype);
    if (member.kind == OpKind::kSend) {
      sends.push_back({member.root_or_peer, const_cast<void*>(member.input), bytes});
    } else {
      recvs.push_back({member.root_or_peer, member.output, bytes});
    }
  }
  if (options_.checked) CRIA_RETURN_IF_ERROR(ExchangeHeaders(call, sends, recvs, wait));
  return port_->Exchange(sends, recvs, kDataChannel, wait);
}

// Both sides of each message tell its size before it moves.
Status MpiCommunicator::ExchangeHeaders(const Call& call, std::span<const MpiMessage> sends,
                                        std::span<const MpiMessage> recvs, const MpiWait& wait) {
  std::vector<int64_t> mine, theirs(sends.size() + recvs.size());
  for (const MpiMessage& send : sends) mine.push_back(send.bytes);
  for (const MpiMessage& recv : recvs) mine.push_back(recv.bytes);
  std::vector<MpiMessage> from_senders, from_receivers, to_receivers, to_senders;
  for (size_t i = 0; i < mine.size(); ++i) {
    const bool is_send = i < sends.size();
    const int peer = is_send ? sends[i].peer : recvs[i - sends.size()].peer;
    (is_send ? to_receivers : to_senders).push_back({peer, &mine[i], sizeof(int64_t)});
    (is_send ? from_receivers : from_senders).push_back({peer, &theirs[i], sizeof(int64_t)});
  }
  const MpiPort::Channel channels[] = {{to_receivers, from_senders, kSendHeaderChannel},
                                       {to_senders, from_receivers, kRecvHeaderChannel}};
  CRIA_RETURN_IF_ERROR(port_->Exchange(channels, wait));
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] == theirs[i]) continue;
    const bool is_send = i < sends.size();
    const int peer = is_send ? sends[i].peer : recvs[i - sends.size()].peer;
    return MakeError(
        call, CommErrorKind::kMismatch,
        is_send
            ? StrCat("rank ", peer, " receives ", theirs[i], " bytes, this rank sends ", mine[i])
            : StrCat("rank ", peer, " sends ", theirs[i], " bytes, this rank receives ", mine[i]),
        peer);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> JoinMpiWorld(const MpiOptions& options) {
  CRIA_ASSIGN_OR_RETURN(auto runtime, MpiRuntime::Acquire(!options.blocking));
  const FailureState failure;
  const double end_s = RealClock()->MonotonicSeconds() + options.timeout_s;
  CRIA_ASSIGN_OR_RETURN(auto port,
                        MpiPort::DuplicateWorld(runtime, options.blocking,
                                                {.deadline_s = end_s, .failure = &failure}));
  SerialCommunicator::Identity identity = {.name = options.name,
                                           .rank = runtime->rank(),
                                           .timeout_s = options.timeout_s,
                                           .observer = options.observer};
  for (int r = 0; r < runtime->size(); ++r) identity.world_ranks.push_back(r);
  return std::unique_ptr<Communicator>(
      std::make_unique<MpiCommunicator>(runtime, options, std::move(identity), std::move(port)));
}

}  // namespace cria::comm

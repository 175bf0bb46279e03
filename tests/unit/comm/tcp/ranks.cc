#include "tests/unit/comm/tcp/ranks.h"

#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"

namespace cria::comm {

Ranks::Ranks(int size, TcpOptions options) {
  auto map = std::make_shared<RankMap>();
  for (int rank = 0; rank < size; ++rank) {
    auto domain = TcpDomain::Create(options);
    CRIA_CHECK(domain.ok(), Message(domain.status()));
    RankInfo record;
    record.host = "here";
    record.address = (*domain)->address();
    record.port = (*domain)->port();
    map->push_back(record);
    domains_.push_back(*std::move(domain));
  }
  for (int rank = 0; rank < size; ++rank) domain(rank)->Start(rank, map);
}

int Ranks::num_connections() const {
  int sum = 0;
  for (const auto& domain : domains_) sum += domain == nullptr ? 0 : domain->num_connections();
  return sum;
}

void RunRanks(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

GroupInfo InfoOf(const std::string& name, const std::vector<int>& world_ranks, int rank) {
  std::string text = name;
  for (const int world : world_ranks) text += StrCat(",", world);
  GroupInfo info{.name = name, .id = Hash64(text), .rank = rank, .world_ranks = world_ranks};
  for (int i = 0; i < info.size(); ++i) info.local_ranks.push_back(i);
  return info;
}

Member::Member(TcpDomain* domain, const GroupInfo& group) : info(group) {
  auto opened = domain->OpenGroup(info, &failure);
  CRIA_CHECK(opened.ok(), Message(opened.status()));
  transport = *std::move(opened);
}

Group::Group(Ranks* ranks, const std::string& name, std::vector<int> world_ranks) {
  if (world_ranks.empty()) {
    for (int rank = 0; rank < ranks->size(); ++rank) world_ranks.push_back(rank);
  }
  for (size_t rank = 0; rank < world_ranks.size(); ++rank) {
    members_.push_back(std::make_unique<Member>(ranks->domain(world_ranks[rank]),
                                                InfoOf(name, world_ranks, static_cast<int>(rank))));
  }
}

Status Member::Run(const Call& call, const void* input, void* output) {
  GroupTopology topology;
  topology.host_of_rank.assign(static_cast<size_t>(info.size()), 0);
  const PlanRequest request{.kind = call.kind,
                            .dtype = call.dtype,
                            .reduce_op = call.op,
                            .count = call.count,
                            .root = call.root,
                            .topology = &topology,
                            .rank = info.rank,
                            .tcp_only = true};
  CRIA_ASSIGN_OR_RETURN(const Plan plan, BuildPlan(request, call.algorithms));
  sequence = call.sequence == 0 ? sequence + 1 : call.sequence;
  Operation operation{.kind = call.kind, .dtype = call.dtype, .count = call.count};
  operation.root_or_peer = call.root;
  OperationContext context{.operation = &operation, .plan = &plan};
  context.signature = {
      .group_id = info.id,
      .sequence = sequence,
      .plan_digest = plan.digest,
      .count = call.count,
      .input_bytes = InputElements(operation, info.rank, info.size()) * ByteSize(call.dtype),
      .root = call.root,
      .kind = call.kind,
      .dtype = call.dtype,
      .reduce_op = call.op,
      .algorithm = plan.algorithm};
  std::vector<std::byte> scratch(
      static_cast<size_t>(plan.scratch_elements * SlotElementBytes(plan, Slot::kScratch)));
  context.slots[0] = static_cast<std::byte*>(const_cast<void*>(input));
  context.slots[1] = static_cast<std::byte*>(output);
  context.slots[2] = scratch.data();
  context.timeout_s = call.timeout_s;
  context.deadline_s = RealClock()->MonotonicSeconds() + call.timeout_s;
  return transport->Run(context, plan.rounds);
}

Status Member::Exchange(std::vector<Transfer> sends, std::vector<Transfer> recvs,
                        double timeout_s) {
  const Operation operation{.kind = OpKind::kGroup};
  OperationContext context{.operation = &operation};
  context.signature = {.group_id = info.id, .sequence = ++num_transfers, .kind = OpKind::kGroup};
  context.timeout_s = timeout_s;
  context.deadline_s = RealClock()->MonotonicSeconds() + timeout_s;
  return transport->Exchange(context, sends, recvs);
}

}  // namespace cria::comm

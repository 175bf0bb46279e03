// Ranks for tests of the TCP transport: domains on the loopback, groups, collectives by plan.
//
//   Ranks ranks(4);
//   Group group(&ranks, "world");                       // all ranks
//   RunRanks(4, [&](int rank) { status[rank] = group.Run(rank, call, in[rank], out[rank]); });
//
// Threads play ranks; nothing is shared between them but what a job of processes shares.

#ifndef CRIA_TESTS_UNIT_COMM_TCP_RANKS_H_
#define CRIA_TESTS_UNIT_COMM_TCP_RANKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/engine/failure.h"
#include "comm/engine/transport.h"
#include "comm/plan/planner.h"
#include "comm/tcp/tcp_domain.h"

namespace cria::comm {

// A domain for each rank, started.
class Ranks {
 public:
  explicit Ranks(int size, TcpOptions options = {.address = "127.0.0.1"});
  int size() const { return static_cast<int>(domains_.size()); }
  TcpDomain* domain(int rank) { return domains_[static_cast<size_t>(rank)].get(); }
  void Close(int rank) { domains_[static_cast<size_t>(rank)].reset(); }
  int num_connections() const;

 private:
  std::vector<std::unique_ptr<TcpDomain>> domains_;
};

// Calls body(rank) on a thread for each rank, waits for all.
void RunRanks(int size, const std::function<void(int rank)>& body);

struct Call {
  OpKind kind = OpKind::kAllReduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 0;
  int root = 0;
  double timeout_s = 60;
  AlgorithmOverrides algorithms = {};
  uint64_t sequence = 0;  // 0: the member's next
};

// One rank of a group.
class Member {
 public:
  Member(TcpDomain* domain, const GroupInfo& info);
  ~Member() { transport.reset(); }
  Status Run(const Call& call, const void* input, void* output);
  Status Exchange(std::vector<Transfer> sends, std::vector<Transfer> recvs, double timeout_s = 60);

  GroupInfo info;
  FailureState failure;
  std::unique_ptr<Transport> transport;
  uint64_t sequence = 0;
  uint64_t num_transfers = 0;
};

// All of its ranks; ids follow from name and list.
class Group {
 public:
  Group(Ranks* ranks, const std::string& name, std::vector<int> world_ranks = {});
  Member& at(int rank) { return *members_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(members_.size()); }

 private:
  std::vector<std::unique_ptr<Member>> members_;
};

GroupInfo InfoOf(const std::string& name, const std::vector<int>& world_ranks, int rank);

}  // namespace cria::comm

#endif  // CRIA_TESTS_UNIT_COMM_TCP_RANKS_H_

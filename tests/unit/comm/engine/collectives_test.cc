// Every collective over real domains, ranks as threads: hosts, transports, algorithms, sizes,
// types.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/collective_case.h"
#include "tests/support/comm_ranks.h"

namespace cria {
namespace {

using comm::Algorithm;
using comm::DataType;
using comm::OpKind;
using comm::ReduceOp;

constexpr OpKind kKinds[] = {OpKind::kAllReduce,      OpKind::kReduce,     OpKind::kBroadcast,
                             OpKind::kAllGather,      OpKind::kAllGatherV, OpKind::kReduceScatter,
                             OpKind::kReduceScatterV, OpKind::kAllToAll,   OpKind::kAllToAllV,
                             OpKind::kGather,         OpKind::kScatter,    OpKind::kBarrier};

struct Layout {
  std::string name;
  int ranks = 0;
  std::vector<int> hosts = {};
  comm::TransportChoice transport = comm::TransportChoice::kAuto;
  comm::AlgorithmOverrides algorithms = {};
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class CollectivesTest : public testing::TestWithParam<Layout> {
 protected:
  // Runs the cases on all ranks; a rank stops at its first failure.
  void Run(const std::vector<CollectiveCase>& cases) {
    const Layout& layout = GetParam();
    RunRankThreads({.ranks = layout.ranks,
                    .host_of_rank = layout.hosts,
                    .transport = layout.transport,
                    .algorithms = layout.algorithms},
                   [&cases](comm::Communicator& world) {
                     for (const CollectiveCase& test : cases) {
                       const std::string error = CheckCollective(world, test);
                       ASSERT_EQ(error, "") << Describe(test);
                     }
                   });
  }
  static bool IsRefused(OpKind kind, DataType dtype, ReduceOp op);
};

// An average of integers must see all values at once; asked for an algorithm that cannot, the
// planner refuses.
bool CollectivesTest::IsRefused(OpKind kind, DataType dtype, ReduceOp op) {
  const bool is_float =
      dtype == DataType::kFloat32 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat16;
  const auto told = GetParam().algorithms.find(kind);
  return op == ReduceOp::kAvg && !is_float && told != GetParam().algorithms.end() &&
         told->second != Algorithm::kFlat;
}

TEST_P(CollectivesTest, GivesTheExactResultForAnyCount) {
  std::vector<CollectiveCase> cases;
  const int size = GetParam().ranks;
  for (const OpKind kind : kKinds) {
    for (const int64_t count : {0, 1, size, size + 1, 129, 1000, 40'000}) {
      for (const bool in_place : {false, true}) {
        if (in_place && kind == OpKind::kAllToAllV) continue;
        cases.push_back({.kind = kind,
                         .count = count,
                         .root = static_cast<int>(count % size),
                         .in_place = in_place,
                         .shared = count % 2 == 1});
      }
    }
  }
  Run(cases);
}

TEST_P(CollectivesTest, GivesTheExactResultForAnyTypeReductionAndAlignment) {
  std::vector<CollectiveCase> cases;
  const int size = GetParam().ranks;
  for (const OpKind kind : kKinds) {
    for (int t = 0; t < comm::kNumDataTypes; ++t) {
      const auto dtype = static_cast<DataType>(t);
      for (int o = 0; o < (comm::Reduces(kind) ? comm::kNumReduceOps : 1); ++o) {
        if (comm::Reduces(kind) && !comm::Reducible(dtype)) continue;
        if (IsRefused(kind, dtype, static_cast<ReduceOp>(o))) continue;
        cases.push_back({.kind = kind,
                         .dtype = dtype,
                         .op = static_cast<ReduceOp>(o),
                         .count = 37 + o,
                         .root = size - 1,
                         .in_place = o % 2 == 1,
                         .shared = (o + t) % 2 == 1,
                         .offset_bytes = (t * 7 + o) % 16});
      }
    }
  }
  Run(cases);
}

TEST_P(CollectivesTest, AsyncOperationsRunInOrder) {
  std::vector<CollectiveCase> cases;
  for (const OpKind kind : kKinds) {
    cases.push_back({.kind = kind, .count = 100, .call = {.async = true}});
    cases.push_back({.kind = kind, .count = 100});
  }
  Run(cases);
}

std::vector<Layout> Layouts() {
  using comm::TransportChoice;
  std::vector<Layout> layouts = {
      {"OneRank", 1},
      {"Shm2", 2},
      {"Shm3", 3},
      {"Shm4", 4},
      {"Shm8", 8},
      {"Tcp2", 2, {}, TransportChoice::kTcp},
      {"Tcp3", 3, {}, TransportChoice::kTcp},
      {"Tcp5", 5, {}, TransportChoice::kTcp},
      {"Hosts001", 3, {0, 0, 1}},
      {"Hosts0101", 4, {0, 1, 0, 1}},
      {"Hosts000112", 6, {0, 0, 0, 1, 1, 2}},
  };
  for (int a = 0; a < comm::kNumAlgorithms; ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    if (algorithm == Algorithm::kPairwise) {
      layouts.push_back(
          {"PairwiseTcp4", 4, {}, TransportChoice::kTcp, {{OpKind::kAllToAll, algorithm}}});
      continue;
    }
    if (algorithm == Algorithm::kHierarchical) {
      layouts.push_back({"HierarchicalHosts00110",
                         5,
                         {0, 0, 1, 1, 0},
                         TransportChoice::kAuto,
                         {{OpKind::kAllReduce, algorithm}}});
      continue;
    }
    for (const int ranks : {4, 5}) {
      layouts.push_back({std::string(comm::Name(algorithm)) + "Tcp" + std::to_string(ranks),
                         ranks,
                         {},
                         TransportChoice::kTcp,
                         {{OpKind::kAllReduce, algorithm}}});
    }
    layouts.push_back({std::string(comm::Name(algorithm)) + "Shm3",
                       3,
                       {},
                       TransportChoice::kAuto,
                       {{OpKind::kAllReduce, algorithm}}});
  }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, CollectivesTest, testing::ValuesIn(Layouts()),
                         [](const testing::TestParamInfo<Layout>& info) {
                           std::string name;
                           for (const char c : info.param.name) {
                             if (c != '_') name += c;
                           }
                           return name;
                         });

}  // namespace
}  // namespace cria

// Every kind of collective over the loopback: algorithms x ranks x counts x in place x streams.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/str.h"
#include "tests/unit/comm/tcp/ranks.h"

namespace cria::comm {
namespace {

// What rank r gives as its element i: all sums are exact in float.
float Given(int rank, int64_t i) { return static_cast<float>((rank + 1) * 100 + i % 61); }

float Sum(int size, int64_t i) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += Given(rank, i);
  return sum;
}

struct Case {
  int size;
  int64_t count;
  Algorithm algorithm;
  bool in_place = false;
  int streams = 1;
};

class CollectivesTest : public ::testing::TestWithParam<Case> {};

Call CallOf(OpKind kind, const Case& param) {
  return {.kind = kind,
          .count = param.count,
          .root = param.size - 1,
          .algorithms = {{kind, param.algorithm}}};
}

int64_t InputCount(const Call& call, int rank, int size) {
  return InputElements({.kind = call.kind, .count = call.count, .root_or_peer = call.root}, rank,
                       size);
}
int64_t OutputCount(const Call& call, int rank, int size) {
  return OutputElements({.kind = call.kind, .count = call.count, .root_or_peer = call.root}, rank,
                        size);
}

float Expected(const Call& call, int rank, int size, int64_t i) {
  const int64_t part = call.count == 0 ? 0 : i / call.count;
  const int64_t within = call.count == 0 ? 0 : i % call.count;
  switch (call.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      return Sum(size, i);
    case OpKind::kReduceScatter:
      return Sum(size, rank * call.count + i);
    case OpKind::kBroadcast:
      return Given(call.root, i);
    case OpKind::kAllGather:
    case OpKind::kGather:
      return Given(static_cast<int>(part), within);
    case OpKind::kScatter:
      return Given(call.root, rank * call.count + i);
    case OpKind::kAllToAll:
      return Given(static_cast<int>(part), rank * call.count + within);
    default:
      return 0;
  }
}

// Buffers of one rank: separate, or in place as operation.h allows it.
struct Buffers {
  std::vector<float> input, output;
  float* in = nullptr;
  float* out = nullptr;
};

Buffers MakeBuffers(const Call& call, int rank, int size, bool in_place) {
  const int64_t num_in = InputCount(call, rank, size);
  const int64_t num_out = OutputCount(call, rank, size);
  Buffers buffers;
  const bool shares = in_place && num_in > 0 && num_out > 0 && call.kind != OpKind::kAllToAll;
  buffers.output.assign(static_cast<size_t>(shares ? std::max(num_in, num_out) : num_out), -1);
  if (shares) {
    buffers.in = buffers.out = buffers.output.data();
    if (num_in < num_out) buffers.in += rank * num_in;
    if (num_out < num_in) buffers.out += rank * num_out;
  } else {
    buffers.input.resize(static_cast<size_t>(num_in));
    buffers.in = buffers.input.data();
    buffers.out = buffers.output.data();
  }
  for (int64_t i = 0; i < num_in; ++i) buffers.in[i] = Given(rank, i);
  return buffers;
}

void Check(Group* group, const Call& call, bool in_place) {
  const int size = group->size();
  std::vector<Buffers> buffers;
  for (int rank = 0; rank < size; ++rank) {
    buffers.push_back(MakeBuffers(call, rank, size, in_place));
  }
  std::vector<Status> outcomes(static_cast<size_t>(size));
  RunRanks(size, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    outcomes[r] = group->at(rank).Run(call, buffers[r].in, buffers[r].out);
  });
  for (int rank = 0; rank < size; ++rank) {
    const auto r = static_cast<size_t>(rank);
    ASSERT_TRUE(outcomes[r].ok()) << Name(call.kind) << " rank " << rank << ": " << outcomes[r];
    for (int64_t i = 0; i < OutputCount(call, rank, size); ++i) {
      ASSERT_EQ(buffers[r].out[i], Expected(call, rank, size, i))
          << Name(call.kind) << " rank " << rank << " element " << i;
    }
  }
}

TEST_P(CollectivesTest, GivesTheRightElementsAndRepeats) {
  const Case& param = GetParam();
  Ranks ranks(param.size, {.address = "127.0.0.1", .streams = param.streams});
  Group group(&ranks, "world");
  for (const OpKind kind :
       {OpKind::kAllReduce, OpKind::kReduce, OpKind::kBroadcast, OpKind::kAllGather,
        OpKind::kReduceScatter, OpKind::kAllToAll, OpKind::kGather, OpKind::kScatter}) {
    const Call call = CallOf(kind, param);
    GroupTopology topology;
    topology.host_of_rank.assign(static_cast<size_t>(param.size), 0);
    const PlanRequest request{
        .kind = kind, .count = param.count, .root = call.root, .topology = &topology};
    if (!BuildPlan(request, call.algorithms).ok()) continue;  // not every kind has every algorithm
    // A broadcast has one buffer.
    const bool in_place = param.in_place || kind == OpKind::kBroadcast;
    Check(&group, call, in_place);
    Check(&group, call, in_place);
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kRing, Algorithm::kPairwise,
                                    Algorithm::kHalvingDoubling, Algorithm::kDoubleTree}) {
    for (const int size : {2, 3, 5}) {
      for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{1001}, int64_t{60'001}}) {
        cases.push_back({size, count, algorithm, /*in_place=*/(size + count) % 2 == 0,
                         /*streams=*/count > 50'000 ? size - 1 : 1});
      }
    }
  }
  cases.push_back({2, 1 << 20, Algorithm::kFlat, true, 1});
  cases.push_back({2, 1 << 20, Algorithm::kRing, false, 3});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, CollectivesTest, ::testing::ValuesIn(Cases()),
                         [](const auto& instance) {
                           const Case& param = instance.param;
                           return StrCat(Name(param.algorithm), "_", param.size, "ranks_",
                                         param.count, param.in_place ? "_in_place" : "", "_",
                                         param.streams, "streams");
                         });

}  // namespace
}  // namespace cria::comm

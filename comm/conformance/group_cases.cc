// Rows about groups: their lists, their order, several at once.

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/rng.h"
#include "base/str.h"
#include "comm/conformance/case.h"

namespace cria::comm {
namespace {

using Group = std::unique_ptr<Communicator>;

Status CheckGroup(Communicator* group) {
  CRIA_RETURN_IF_ERROR(CheckCollective(group, {.kind = OpKind::kAllReduce, .count = 1000}));
  return CheckCollective(group, {.kind = OpKind::kAllGather, .count = 77});
}

Status DisjointLists(CaseContext& context) {
  // [0, 3] and [1, 2] at once, the same name.
  const bool outer = context.rank() == 0 || context.rank() == 3;
  CRIA_ASSIGN_OR_RETURN(
      auto group, context.world->NewGroup(
                      {.ranks = outer ? std::vector{0, 3} : std::vector{1, 2}, .name = "pair"}));
  CRIA_RETURN_IF_ERROR(CheckGroup(group.get()));
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  // Ranks 0 and 1 disagree about the list: an error, on both, in time.
  if (context.rank() < 2) {
    const std::vector<int> list = context.rank() == 0 ? std::vector{0, 1} : std::vector{0, 1, 2};
    auto wrong = context.world->NewGroup({.ranks = list, .name = "disagree"});
    if (wrong.ok()) {
      const double start_s = Now();
      const Status status = (*wrong)->Barrier({.call = {.timeout_s = 2}}).Wait();
      CRIA_RETURN_IF_ERROR(Expect(!status.ok(), "different lists went well"));
      CRIA_RETURN_IF_ERROR(Expect(Now() - start_s < 4, "it took ", Now() - start_s, " s"));
    }
  }
  return context.board->Barrier();
}

Status PermutedLists(CaseContext& context) {
  // (0, 5) (2, 1) (4, 3): ranks out of order.
  const std::vector<std::vector<int>> lists = {{0, 5}, {2, 1}, {4, 3}};
  for (const std::vector<int>& list : lists) {
    const auto place = std::find(list.begin(), list.end(), context.rank());
    if (place == list.end()) continue;
    CRIA_ASSIGN_OR_RETURN(auto group, context.world->NewGroup({.ranks = list, .name = "permuted"}));
    CRIA_RETURN_IF_ERROR(Expect(group->rank() == place - list.begin(), "rank ", context.rank(),
                                " is number ", group->rank()));
    CRIA_RETURN_IF_ERROR(CheckGroup(group.get()));
  }
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  // Two threads split two communicators at once.
  CRIA_ASSIGN_OR_RETURN(auto first, context.Everybody("first"));
  CRIA_ASSIGN_OR_RETURN(auto second, context.Everybody("second"));
  Status outcomes[2];
  const auto split = [&context](Communicator* comm, int color, Status* outcome) {
    auto part = comm->Split(color, -context.rank(), "part");
    *outcome = part.ok() ? CheckGroup(part->get()) : part.status();
  };
  std::thread thread([&] { split(first.get(), context.rank() % 2, &outcomes[0]); });
  split(second.get(), context.rank() / 2, &outcomes[1]);
  thread.join();
  CRIA_RETURN_IF_ERROR(outcomes[0]);
  return outcomes[1];
}

Status OverlappingGroups(CaseContext& context) {
  // {0, 1}, {1, 2}, {0, 2}: each rank in two, used in different orders.
  const std::vector<std::vector<int>> lists = {{0, 1}, {1, 2}, {0, 2}};
  std::vector<Group> groups;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (std::find(lists[i].begin(), lists[i].end(), context.rank()) == lists[i].end()) continue;
    CRIA_ASSIGN_OR_RETURN(
        auto group, context.world->NewGroup({.ranks = lists[i], .name = StrCat("overlap", i)}));
    groups.push_back(std::move(group));
  }
  // Rank 0: A, C. Rank 1: B, A. Rank 2: C, B: in a circle.
  if (context.rank() != 0) std::swap(groups[0], groups[1]);
  constexpr int64_t kCount = 50000;
  std::vector<float> x(2 * kCount, static_cast<float>(context.rank() + 1)), y(2 * kCount);
  for (int round = 0; round < 20; ++round) {
    std::vector<Work> works;
    for (size_t i = 0; i < 2; ++i) {
      works.push_back(groups[i]->AllReduce({.input = x.data() + i * kCount,
                                            .output = y.data() + i * kCount,
                                            .count = kCount,
                                            .call = {.async = true}}));
    }
    for (size_t i = 0; i < 2; ++i) {
      CRIA_RETURN_IF_ERROR(works[i].Wait());
      float want = 0;
      for (const int r : groups[i]->world_ranks()) want += static_cast<float>(r + 1);
      CRIA_RETURN_IF_ERROR(Expect(y[i * kCount] == want && y[(i + 1) * kCount - 1] == want,
                                  "group ", groups[i]->name(), " gives ", y[i * kCount],
                                  " instead of ", want));
    }
  }
  return OkStatus();
}

Status SplitsOfManyRanks(CaseContext& context) {
  // Neighbouring sizes around powers of two.
  for (const int size : {7, 8, 9, 15, 16, 17, 127, 128, 129, 255, 256, 257}) {
    if (size >= context.size()) break;
    const int color = context.rank() < size ? 0 : -1;
    CRIA_ASSIGN_OR_RETURN(auto group,
                          context.world->Split(color, context.rank(), StrCat("first", size)));
    CRIA_RETURN_IF_ERROR(Expect((group != nullptr) == (color == 0), "split by ", size,
                                " is wrong about rank ", context.rank()));
    if (group == nullptr) continue;
    CRIA_RETURN_IF_ERROR(Expect(group->size() == size, "split by ", size, " has ", group->size()));
    CRIA_RETURN_IF_ERROR(CheckCollective(group.get(), {.kind = OpKind::kAllReduce, .count = 100}));
  }
  return OkStatus();
}

Status DestroyInAnyOrder(CaseContext& context) {
  constexpr size_t kGroups = 6;
  std::vector<Group> groups;
  std::vector<std::vector<float>> data(kGroups);
  std::vector<Work> works;
  for (size_t i = 0; i < kGroups; ++i) {
    CRIA_ASSIGN_OR_RETURN(auto group, context.Everybody(StrCat("destroyed", i)));
    groups.push_back(std::move(group));
    data[i].assign(10000, 1.0F);
    works.push_back(groups[i]->AllReduce({.input = data[i].data(),
                                          .output = data[i].data(),
                                          .count = 10000,
                                          .call = {.timeout_s = 20, .async = true}}));
  }
  // Work pending, another order on each rank.
  const KeyedPermutation order(5, static_cast<uint64_t>(context.rank()), kGroups);
  for (uint64_t i = 0; i < kGroups; ++i) groups[order.At(i)].reset();
  for (size_t i = 0; i < kGroups; ++i) {
    CRIA_RETURN_IF_ERROR(works[i].Wait());
    CRIA_RETURN_IF_ERROR(Expect(data[i][9999] == static_cast<float>(context.size()), "group ", i,
                                " gives ", data[i][9999]));
  }
  return CheckGroup(context.world);
}

}  // namespace

std::vector<Case> GroupCases() {
  return {
      {.name = "lists_differ",
       .row = 24,
       .reports = "pytorch#130102",
       .what = "disjoint groups at once; ranks that disagree about a list get errors",
       .ranks = {4},
       .body = &DisjointLists},
      {.name = "permuted_lists",
       .row = 25,
       .reports = "ompi#2025, charm#894, sst-elements#1484",
       .what = "(0,5) (2,1) (4,3); splits from two threads at once",
       .ranks = {6},
       .body = &PermutedLists},
      {.name = "overlapping_groups",
       .row = 26,
       .reports = "rccl#2191",
       .what = "overlapping groups used at once, in different orders",
       .ranks = {3},
       .body = &OverlappingGroups},
      {.name = "split_sizes",
       .row = 37,
       .reports = "rocm-systems#6242",
       .what = "splits at 2^k - 1, 2^k, 2^k + 1 ranks, up to 17",
       .ranks = {18},
       .body = &SplitsOfManyRanks,
       .limit_s = 90},
      // MPI's and gloo's ranks spin while they wait: hundreds of them stop a small machine.
      {.name = "split_257",
       .row = 37,
       .reports = "rocm-systems#6242",
       .what = "the same up to 257",
       .ranks = {258},
       .body = &SplitsOfManyRanks,
       .limit_s = 300,
       .impls = {"cria"}},
      {.name = "destroy_order",
       .row = 38,
       .reports = "pytorch PR 119250",
       .what = "groups destroyed in another order on each rank, with work pending",
       .ranks = {3},
       .body = &DestroyInAnyOrder},
  };
}

}  // namespace cria::comm

// What the communicator promises beyond results: groups, point to point, errors, events.

#include "comm/engine/cria_communicator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "base/str.h"
#include "tests/support/collective_case.h"
#include "tests/support/comm_ranks.h"

namespace cria::comm {
namespace {

// The three ways in which ranks are connected.
struct Wiring {
  std::string name;
  std::vector<int> hosts = {};
  TransportChoice transport = TransportChoice::kAuto;
};
void PrintTo(const Wiring& wiring, std::ostream* out) { *out << wiring.name; }

class CriaCommunicatorTest : public testing::TestWithParam<Wiring> {
 protected:
  // Four ranks.
  RankOptions Options() const {
    return {.ranks = 4, .host_of_rank = GetParam().hosts, .transport = GetParam().transport};
  }
};

INSTANTIATE_TEST_SUITE_P(Wirings, CriaCommunicatorTest,
                         testing::Values(Wiring{"Shm"}, Wiring{"Tcp", {}, TransportChoice::kTcp},
                                         Wiring{"TwoHosts", {0, 1, 0, 1}}),
                         [](const testing::TestParamInfo<Wiring>& info) {
                           return info.param.name;
                         });

TEST_P(CriaCommunicatorTest, AllRanksGetTheSameBitsAndEachRunGivesThem) {
  constexpr int64_t kCount = 10'007;
  std::vector<std::vector<float>> results;
  Mutex mu;
  for (int run = 0; run < 2; ++run) {
    RunRankThreads(Options(), [&results, &mu](Communicator& world) {
      const Rng rng(17, static_cast<uint64_t>(world.rank()));
      std::vector<float> values(kCount);
      for (int64_t i = 0; i < kCount; ++i) {
        values[static_cast<size_t>(i)] = rng.Normal(static_cast<uint64_t>(i));
      }
      ASSERT_TRUE(world.AllReduce({values.data(), values.data(), kCount}).Wait().ok());
      MutexLock lock(&mu);
      results.push_back(values);
    });
  }
  ASSERT_EQ(results.size(), 8u);
  for (const std::vector<float>& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), kCount * sizeof(float)), 0);
  }
}

TEST_P(CriaCommunicatorTest, GroupsOfAnyOrderWorkSideBySide) {
  RunRankThreads(Options(), [](Communicator& world) {
    const bool even = world.rank() % 2 == 0;
    auto stripe = world.NewGroup(
        {.ranks = even ? std::vector<int>{2, 0} : std::vector<int>{1, 3}, .name = "stripe"});
    ASSERT_TRUE(stripe.ok()) << Message(stripe.status());
    // Crossing the first: made by two ranks of each, in another order.
    auto half =
        world.NewGroup({.ranks = world.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{3, 2},
                        .name = "half"});
    ASSERT_TRUE(half.ok()) << Message(half.status());
    for (int i = 0; i < 5; ++i) {
      for (Communicator* group : {stripe->get(), half->get(), &world}) {
        ASSERT_EQ(CheckCollective(*group, {.kind = OpKind::kAllReduce, .count = 100 + i}), "");
        ASSERT_EQ(CheckCollective(*group, {.kind = OpKind::kAllGather, .count = 3}), "");
      }
    }
    EXPECT_EQ((*stripe)->world_ranks(), even ? (std::vector<int>{2, 0}) : (std::vector<int>{1, 3}));
  });
}

TEST_P(CriaCommunicatorTest, SplitAndShrinkMakeWorkingGroups) {
  RunRankThreads(Options(), [](Communicator& world) {
    auto split = world.Split(world.rank() / 2, -world.rank(), "pair");
    ASSERT_TRUE(split.ok()) << Message(split.status());
    EXPECT_EQ((*split)->rank(), 1 - world.rank() % 2);  // by falling rank
    ASSERT_EQ(CheckCollective(**split, {.count = 50}), "");
    if (world.rank() == 1) return;
    auto rest = world.Shrink({1});
    ASSERT_TRUE(rest.ok()) << Message(rest.status());
    EXPECT_EQ((*rest)->size(), 3);
    ASSERT_EQ(CheckCollective(**rest, {.kind = OpKind::kReduceScatter, .count = 9}), "");
  });
}

TEST_P(CriaCommunicatorTest, OverlappingGroupsInDifferentOrderMakeProgressWhenAsync) {
  RunRankThreads(Options(), [](Communicator& world) {
    auto a = world.NewGroup({.ranks = {0, 1, 2, 3}, .name = "a"});
    auto b = world.NewGroup({.ranks = {3, 2, 1, 0}, .name = "b"});
    ASSERT_TRUE(a.ok() && b.ok());
    std::vector<float> x(1000, 1.0f), y(1000, 2.0f);
    const bool a_first = world.rank() % 2 == 0;
    std::vector<Work> works;
    for (int i = 0; i < 2; ++i) {
      Communicator& group = (i == 0) == a_first ? **a : **b;
      std::vector<float>& values = (i == 0) == a_first ? x : y;
      works.push_back(group.AllReduce({values.data(),
                                       values.data(),
                                       1000,
                                       DataType::kFloat32,
                                       ReduceOp::kSum,
                                       {.async = true}}));
    }
    for (const Work& work : works) EXPECT_TRUE(work.Wait().ok()) << Message(work.Wait());
    EXPECT_EQ(x[999], 4.0f);
    EXPECT_EQ(y[999], 8.0f);
  });
}

TEST_P(CriaCommunicatorTest, SendsAndReceivesPassInOrder) {
  RunRankThreads(Options(), [](Communicator& world) {
    const int next = (world.rank() + 1) % 4;
    const int before = (world.rank() + 3) % 4;
    for (const int64_t count : {1, 0, 5'000, 300'000}) {
      std::vector<int32_t> out(static_cast<size_t>(count)), in(static_cast<size_t>(count), -1);
      std::iota(out.begin(), out.end(), world.rank() * 1'000'000);
      // A ring of plain calls: even ranks send first.
      for (int turn = 0; turn < 2; ++turn) {
        if ((world.rank() + turn) % 2 == 0) {
          ASSERT_TRUE(world.Send({out.data(), count, DataType::kInt32, next}).Wait().ok());
        } else {
          ASSERT_TRUE(world.Recv({in.data(), count, DataType::kInt32, before}).Wait().ok());
        }
      }
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(in[static_cast<size_t>(i)], before * 1'000'000 + i);
      }
    }
    ASSERT_EQ(CheckCollective(world, {.count = 10}), "");
  });
}

TEST_P(CriaCommunicatorTest, AGroupedExchangeOfAllWithAllDoesNotDeadlock) {
  constexpr int64_t kCount = 100'000;
  RunRankThreads(Options(), [](Communicator& world) {
    std::vector<std::vector<float>> in(4), out(4);
    ASSERT_TRUE(world.GroupStart().ok());
    for (int peer = 0; peer < 4; ++peer) {  // this rank itself as well
      const auto p = static_cast<size_t>(peer);
      out[p].assign(kCount, static_cast<float>(world.rank() * 10 + peer));
      in[p].assign(kCount, -1);
      EXPECT_TRUE(world.Send({out[p].data(), kCount, DataType::kFloat32, peer}).Wait().ok());
    }
    for (int peer = 3; peer >= 0; --peer) {
      world.Recv({in[static_cast<size_t>(peer)].data(), kCount, DataType::kFloat32, peer});
    }
    const Status refused = world.Barrier().Wait();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    ASSERT_TRUE(world.GroupEnd().Wait().ok());
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(in[static_cast<size_t>(peer)][kCount - 1],
                static_cast<float>(peer * 10 + world.rank()));
    }
  });
}

TEST_P(CriaCommunicatorTest, AMismatchIsAnErrorOnAllRanksThatNamesBothSides) {
  using Change = void (*)(CollectiveCase*);
  const Change changes[] = {[](CollectiveCase* test) { test->count = 200; },
                            [](CollectiveCase* test) { test->count = 0; },
                            [](CollectiveCase* test) { test->dtype = DataType::kInt32; },
                            [](CollectiveCase* test) { test->op = ReduceOp::kMax; },
                            [](CollectiveCase* test) { test->kind = OpKind::kAllGather; }};
  for (const Change change : changes) {
    RunRankThreads(Options(), [change](Communicator& world) {
      CollectiveCase test{.count = 100};
      // The news may come while a slow rank is still in its first operation.
      CheckCollective(world, test);
      if (world.rank() == 2) change(&test);
      EXPECT_NE(CheckCollective(world, test), "") << Describe(test);
      const auto error = GetCommError(world.failure());
      ASSERT_TRUE(error.has_value()) << Message(world.failure());
      EXPECT_EQ(error->kind, CommErrorKind::kMismatch) << Message(world.failure());
      EXPECT_EQ(error->group, "world");
      EXPECT_EQ(error->sequence, 2u);
      // Who reports it first blames the one that differs from itself; rank 2 is one of the two.
      EXPECT_TRUE(error->culprit == 2 || error->rank == 2 ||
                  error->reason.find("told by rank 2") != std::string::npos)
          << Message(world.failure());
      // The communicator stays broken.
      EXPECT_FALSE(world.Barrier().Wait().ok());
    });
  }
}

TEST_P(CriaCommunicatorTest, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  std::atomic<int> waiting{3};
  RunRankThreads(Options(), [&waiting](Communicator& world) {
    ASSERT_EQ(CheckCollective(world, {.count = 8}), "");
    if (world.rank() == 1) {
      while (waiting > 0) std::this_thread::yield();
      return;
    }
    std::vector<float> x(64);
    const double start_s = RealClock()->MonotonicSeconds();
    const Status status =
        world
            .AllReduce(
                {x.data(), x.data(), 64, DataType::kFloat32, ReduceOp::kSum, {.timeout_s = 0.5}})
            .Wait();
    const double seconds = RealClock()->MonotonicSeconds() - start_s;
    --waiting;
    const auto error = GetCommError(status);
    ASSERT_TRUE(error.has_value()) << Message(status);
    EXPECT_EQ(error->kind, CommErrorKind::kTimeout) << Message(status);
    EXPECT_EQ(error->culprit, 1) << Message(status);
    EXPECT_EQ(error->operation, "all_reduce");
    EXPECT_EQ(error->sequence, 2u);
    EXPECT_GE(seconds, 0.3);
  });
}

TEST_P(CriaCommunicatorTest, AbortEndsTheWaitsOfAllRanksWithItsReason) {
  RunRankThreads(Options(), [](Communicator& world) {
    // The abort may reach a rank that is still in this one.
    CheckCollective(world, {.count = 8});
    if (world.rank() == 3) {
      world.Abort("loss is NaN at step 7");
      EXPECT_FALSE(world.Barrier().Wait().ok());
      return;
    }
    const Status status = world.Barrier({.call = {.timeout_s = 600}}).Wait();
    const auto error = GetCommError(status);
    ASSERT_TRUE(error.has_value()) << Message(status);
    EXPECT_EQ(error->kind, CommErrorKind::kAborted) << Message(status);
    EXPECT_EQ(error->culprit, 3) << Message(status);
    EXPECT_NE(Message(status).find("loss is NaN at step 7"), std::string::npos) << Message(status);
  });
}

TEST_P(CriaCommunicatorTest, AbortFromAnotherThreadEndsAnAsyncOperation) {
  std::atomic<bool> aborted{false};
  RunRankThreads(Options(), [&aborted](Communicator& world) {
    ASSERT_EQ(CheckCollective(world, {.count = 8}), "");
    std::vector<float> x(100);
    if (world.rank() != 0) {
      // These come too late. What rank 0 had given away they may still finish; no more.
      while (!aborted) std::this_thread::yield();
      world.AllReduce({x.data(), x.data(), 100}).Wait().IgnoreError();
      EXPECT_EQ(world.Barrier().Wait().code(), StatusCode::kCancelled) << Message(world.failure());
      return;
    }
    const Work work = world.AllReduce({x.data(),
                                       x.data(),
                                       100,
                                       DataType::kFloat32,
                                       ReduceOp::kSum,
                                       {.timeout_s = 600, .async = true}});
    std::thread other([&world] { world.Abort("stop"); });
    EXPECT_EQ(work.Wait().code(), StatusCode::kCancelled) << Message(work.Wait());
    other.join();
    aborted = true;
  });
}

TEST_P(CriaCommunicatorTest, CommunicatorsDieInAnyOrderWithWorkPending) {
  RunRankThreads(Options(), [](Communicator& world) {
    std::vector<std::unique_ptr<Communicator>> groups;
    std::vector<std::vector<float>> buffers;
    std::vector<Work> works;
    for (int g = 0; g < 3; ++g) {
      auto group = world.NewGroup({.ranks = {0, 1, 2, 3}, .name = StrCat("g", g)});
      ASSERT_TRUE(group.ok());
      groups.push_back(*std::move(group));
      buffers.emplace_back(5000, 1.0f);
    }
    for (size_t g = 0; g < 3; ++g) {
      float* data = buffers[g].data();
      works.push_back(groups[g]->AllReduce(
          {data, data, 5000, DataType::kFloat32, ReduceOp::kSum, {.async = true}}));
    }
    for (size_t i = 0; i < 3; ++i) {
      groups[(i * 2 + static_cast<size_t>(world.rank())) % 3].reset();
    }
    for (const Work& work : works) EXPECT_TRUE(work.Wait().ok()) << Message(work.Wait());
    for (const auto& buffer : buffers) EXPECT_EQ(buffer[4999], 4.0f);
  });
}

// Keeps what it hears.
class Recorder : public debug::Observer {
 public:
  void OnEnqueue(const debug::OperationEvent& event) override { Note("enqueue", event, ""); }
  void OnStart(const debug::OperationEvent& event) override { Note("start", event, ""); }
  void OnEnd(const debug::OperationEvent& event, const Status& status) override {
    Note("end", event, status.ok() ? " ok" : " error");
  }
  std::vector<std::string> lines() {
    MutexLock lock(&mu_);
    return lines_;
  }

 private:
  void Note(const char* what, const debug::OperationEvent& event, const char* outcome) {
    MutexLock lock(&mu_);
    lines_.push_back(StrCat(what, " ", std::string(event.group), " ", std::string(event.operation),
                            " #", event.sequence, " ", event.count, " ", event.input_bytes, " ",
                            event.peer, outcome));
  }
  Mutex mu_;
  std::vector<std::string> lines_ CRIA_GUARDED_BY(mu_);
};

TEST(CriaCommunicatorEventsTest, TheObserverHearsEachOperationThreeTimes) {
  Recorder recorder;
  RunRankThreads(
      {.ranks = 2,
       .adjust =
           [&recorder](int rank, WorldOptions* options) {
             options->observer = rank == 0 ? &recorder : nullptr;
           }},
      [](Communicator& world) {
        std::array<float, 4> x = {1, 2, 3, 4};
        ASSERT_TRUE(world.AllReduce({x.data(), x.data(), 4}).Wait().ok());
        ASSERT_TRUE(
            world.Broadcast({x.data(), 2, DataType::kFloat32, 1, {.async = true}}).Wait().ok());
        if (world.rank() == 0) {
          ASSERT_TRUE(world.Send({x.data(), 1, DataType::kFloat32, 1}).Wait().ok());
        } else {
          ASSERT_TRUE(world.Recv({x.data(), 1, DataType::kFloat32, 0}).Wait().ok());
        }
      });
  EXPECT_EQ(recorder.lines(),
            (std::vector<std::string>{
                "enqueue world all_reduce #1 4 16 -1", "start world all_reduce #1 4 16 -1",
                "end world all_reduce #1 4 16 -1 ok", "enqueue world broadcast #2 2 0 1",
                "start world broadcast #2 2 0 1", "end world broadcast #2 2 0 1 ok",
                "enqueue world send #1 1 4 1", "start world send #1 1 4 1",
                "end world send #1 1 4 1 ok"}));
}

TEST(CriaCommunicatorForkTest, AForkedChildIsRefusedAndItsParentGoesOn) {
  const auto outcomes = RunRankProcesses({.ranks = 2}, [](Communicator& world) -> std::string {
    if (std::string error = CheckCollective(world, {.count = 100}); !error.empty()) return error;
    const pid_t child = fork();
    if (child == 0) {
      const Status status = world.Barrier().Wait();
      _exit(status.code() == StatusCode::kInvalidArgument ? 7 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return "the child was not refused";
    return CheckCollective(world, {.count = 100'000});
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.reported);
    EXPECT_EQ(outcome.report, "");
  }
}

TEST(CriaCommunicatorGroupTest, AWrongListIsRefused) {
  RunRankThreads({.ranks = 1}, [](Communicator& world) {
    EXPECT_EQ(world.NewGroup({.ranks = {1}, .name = "x"}).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(world.NewGroup({.ranks = {0, 0}, .name = "x"}).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(world.NewGroup({.ranks = {}, .name = "x"}).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(world.GroupEnd().Wait().code(), StatusCode::kInvalidArgument);
  });
}

TEST_P(CriaCommunicatorTest, ListsThatDifferAreAnErrorAtTheFirstUse) {
  RunRankThreads(Options(), [](Communicator& world) {
    // Rank 1 believes that rank 2 belongs to the group; the others don't.
    std::vector<int> ranks = {0, 1, 3};
    if (world.rank() == 1) ranks = {0, 1, 2};
    if (world.rank() == 2) return;
    auto group = world.NewGroup({.ranks = ranks, .name = "tp"});
    ASSERT_TRUE(group.ok());
    (*group)->SetTimeout(1.5);
    const Status status = (*group)->Barrier().Wait();
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(GetCommError(status).has_value()) << Message(status);
  });
}

}  // namespace
}  // namespace cria::comm

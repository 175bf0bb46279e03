// What goes wrong in the world: ranks that call something else, stop, die, abort, fork.

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "comm/api/error.h"
#include "comm/shm/shm_domain.h"
#include "tests/unit/comm/shm/shm_ranks.h"

namespace cria::comm {
namespace {

// An all_reduce of floats; correct results or a Status.
Status AllReduce(ShmRank& rank, int64_t count, double timeout_s = 60, bool shared = false) {
  const std::vector<float> input(static_cast<size_t>(count), static_cast<float>(rank.rank() + 1));
  std::vector<float> output(input.size());
  const float* in = input.data();
  float* out = output.data();
  std::unique_ptr<SharedBuffer> buffer;
  if (shared) {
    buffer = *rank.domain().Allocate(8 * count);
    in = std::copy(input.begin(), input.end(), static_cast<float*>(buffer->data())) - count;
    out = static_cast<float*>(buffer->data()) + count;
  }
  CRIA_RETURN_IF_ERROR(rank.Collective({.kind = OpKind::kAllReduce, .count = count},
                                       Algorithm::kFlat, in, out, timeout_s));
  const auto sum = static_cast<float>(rank.size() * (rank.size() + 1) / 2);
  for (int64_t i = 0; i < count; ++i) {
    if (out[i] != sum) return InternalError("element ", i, " is ", out[i]);
  }
  return OkStatus();
}

// "kind culprit reason" of an error.
std::string Brief(const Status& status) {
  if (status.ok()) return "ok";
  const std::optional<CommError> error = GetCommError(status);
  return error ? StrCat(Name(error->kind), " culprit ", error->culprit) : Message(status);
}

TEST(ShmMismatchTest, EveryRankIsTold) {
  for (const int64_t count : {2, 100'000}) {
    for (const int size : {2, 3, 8}) {
      std::vector<Status> outcomes(static_cast<size_t>(size));
      RunShmThreads(size, [&](ShmRank& rank) {
        ASSERT_TRUE(AllReduce(rank, 5).ok());
        const int64_t mine = rank.rank() == 1 ? count + 1 : count;
        outcomes[static_cast<size_t>(rank.rank())] = AllReduce(rank, mine);
      });
      for (int rank = 0; rank < size; ++rank) {
        const auto error = GetCommError(outcomes[static_cast<size_t>(rank)]);
        ASSERT_TRUE(error.has_value()) << outcomes[static_cast<size_t>(rank)].ToString();
        EXPECT_EQ(error->kind, CommErrorKind::kMismatch);
        if (rank != 1) {
          EXPECT_EQ(error->culprit, 1) << Message(outcomes[static_cast<size_t>(rank)]);
        }
      }
    }
  }
}

TEST(ShmMismatchTest, GroupStaysBrokenAndOthersLive) {
  RunShmThreads(2, [&](ShmRank& rank) {
    ShmRank other(&rank.domain(), rank.rank(), rank.size(), /*group_id=*/99);
    EXPECT_FALSE(AllReduce(rank, 10 + rank.rank()).ok());
    EXPECT_FALSE(AllReduce(rank, 10).ok());
    EXPECT_TRUE(AllReduce(other, 10).ok());
  });
}

TEST(ShmAbortTest, ReachesTransfersWithRanksThatExchangeNothingWithTheAborter) {
  // Ranks 0 and 2 wait for a message of each other; rank 1 has met neither.
  std::vector<Status> outcomes(3);
  std::barrier all_told(3);
  RunShmThreads(3, [&](ShmRank& rank) {
    if (rank.rank() == 1) {
      rank.failure().Fail(ToStatus({.kind = CommErrorKind::kAborted, .reason = "no more"}));
    } else {
      float x = 0;
      outcomes[static_cast<size_t>(rank.rank())] = rank.Exchange(
          {},
          {{.peer = 2 - rank.rank(), .data = reinterpret_cast<std::byte*>(&x), .bytes = sizeof(x)}},
          600);
    }
    all_told.arrive_and_wait();
  });
  for (const int rank : {0, 2}) {
    const auto error = GetCommError(outcomes[static_cast<size_t>(rank)]);
    ASSERT_TRUE(error.has_value()) << outcomes[static_cast<size_t>(rank)].ToString();
    EXPECT_EQ(error->kind, CommErrorKind::kAborted);
    EXPECT_NE(error->reason.find("no more"), std::string::npos) << error->reason;
  }
}

TEST(ShmAbortTest, EndsEveryWaitWithTheReason) {
  // Rank 0 never comes; another thread of rank 1 aborts.
  std::vector<Status> outcomes(3);
  RunShmThreads(3, [&](ShmRank& rank) {
    ASSERT_TRUE(AllReduce(rank, 1000).ok());
    if (rank.rank() == 0) {
      while (!rank.failure().failed()) {
        // It is told at its next operation, or when it looks.
        outcomes[0] = AllReduce(rank, 1000);
        break;
      }
      return;
    }
    std::thread aborter;
    if (rank.rank() == 1) {
      aborter = std::thread([&rank] {
        rank.failure().Fail(ToStatus({.kind = CommErrorKind::kAborted, .reason = "no more"}));
      });
    }
    outcomes[static_cast<size_t>(rank.rank())] = AllReduce(rank, 1000, 600);
    if (aborter.joinable()) aborter.join();
  });
  for (const Status& outcome : outcomes) {
    if (outcome.ok()) continue;  // it may have been through before the abort
    const auto error = GetCommError(outcome);
    ASSERT_TRUE(error.has_value()) << outcome.ToString();
    EXPECT_EQ(error->kind, CommErrorKind::kAborted);
    EXPECT_EQ(error->reason, "no more");
  }
}

TEST(ShmTimeoutTest, NamesTheRankThatDoesNotCome) {
  for (const int size : {2, 4}) {
    std::vector<Status> outcomes(static_cast<size_t>(size));
    std::atomic<int> over{0};
    RunShmThreads(size, [&](ShmRank& rank) {
      ASSERT_TRUE(AllReduce(rank, 10).ok());
      if (rank.rank() == size - 1) {
        while (over.load() < size - 1) std::this_thread::yield();
        return;
      }
      outcomes[static_cast<size_t>(rank.rank())] = AllReduce(rank, 10, 0.2);
      over.fetch_add(1);
    });
    for (int rank = 0; rank + 1 < size; ++rank) {
      EXPECT_EQ(Brief(outcomes[static_cast<size_t>(rank)]), StrCat("timeout culprit ", size - 1));
    }
  }
}

TEST(ShmTimeoutTest, FollowsTheChainOfTransfers) {
  // 0 waits for 1, 1 for 2, 2 for 3, and 3 does not come.
  std::vector<Status> outcomes(4);
  std::atomic<int> over{0};
  RunShmThreads(4, [&](ShmRank& rank) {
    ASSERT_TRUE(AllReduce(rank, 10).ok());
    if (rank.rank() == 3) {
      while (over.load() < 3) std::this_thread::yield();
      return;
    }
    std::byte data[8];
    outcomes[static_cast<size_t>(rank.rank())] = rank.Exchange(
        {}, {{.peer = rank.rank() + 1, .data = data, .bytes = 8}}, rank.rank() == 0 ? 0.3 : 30);
    over.fetch_add(1);
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Brief(outcomes[static_cast<size_t>(rank)]), "timeout culprit 3");
  }
}

// All processes run all_reduces for ever; one is hit by a signal in the midst of it.
std::vector<ShmOutcome> HitOne(int size, int victim, int signal, double timeout_s, int64_t count,
                               bool shared) {
  return RunShmProcesses(
      size,
      [=](ShmProcess& self) {
        Status status;
        for (int i = 0; status.ok(); ++i) {
          if (i == 3) self.ready();
          status = AllReduce(*self.rank, count, timeout_s, shared);
        }
        return Brief(status);
      },
      size,
      [victim, signal](const std::vector<int>& pids) {
        kill(pids[static_cast<size_t>(victim)], signal);
      });
}

class ShmSignalTest : public testing::TestWithParam<int> {};

TEST_P(ShmSignalTest, SurvivorsNameTheKilledRank) {
  const int size = GetParam();
  for (const int64_t count : {2, 50'000}) {
    for (int victim = 0; victim < size; ++victim) {
      const std::vector<ShmOutcome> outcomes =
          HitOne(size, victim, SIGKILL, 60, count, victim % 2 == 0);
      for (int rank = 0; rank < size; ++rank) {
        const ShmOutcome& outcome = outcomes[static_cast<size_t>(rank)];
        if (rank == victim) {
          EXPECT_EQ(outcome.signal, SIGKILL);
        } else {
          EXPECT_EQ(outcome.report, StrCat("peer lost culprit ", victim))
              << "rank " << rank << " of " << size << ", count " << count;
        }
      }
    }
  }
}

TEST_P(ShmSignalTest, SurvivorsNameTheStoppedRank) {
  // So long that a busy machine keeps no rank away from an operation.
  constexpr double kTimeoutSeconds = 2;
  const int size = GetParam();
  for (int victim = 0; victim < size; victim += 2) {
    const std::vector<ShmOutcome> outcomes =
        HitOne(size, victim, SIGSTOP, kTimeoutSeconds, victim % 4 == 0 ? 2 : 50'000, false);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(outcomes[static_cast<size_t>(rank)].report, StrCat("timeout culprit ", victim))
          << "rank " << rank << " of " << size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmSignalTest, testing::Values(2, 3, 5));

TEST(ShmKillTest, KilledPartnersOfTransfersAreNamed) {
  const auto outcomes = RunShmProcesses(
      3,
      [](ShmProcess& self) {
        ShmRank& rank = *self.rank;
        std::vector<std::byte> out(3'000'000), in(3'000'000);
        Status status;
        for (int i = 0; status.ok(); ++i) {
          if (i == 2) self.ready();
          status = rank.Exchange(
              {{.peer = (rank.rank() + 1) % 3, .data = out.data(), .bytes = 3'000'000}},
              {{.peer = (rank.rank() + 2) % 3, .data = in.data(), .bytes = 3'000'000}});
        }
        return Brief(status);
      },
      3, [](const std::vector<int>& pids) { kill(pids[1], SIGKILL); });
  EXPECT_EQ(outcomes[0].report, "peer lost culprit 1");
  EXPECT_EQ(outcomes[2].report, "peer lost culprit 1");
}

std::set<std::string> NamesInDevShm() {
  std::set<std::string> names;
  if (DIR* directory = opendir("/dev/shm")) {
    while (const dirent* entry = readdir(directory)) names.insert(entry->d_name);
    closedir(directory);
  }
  return names;
}

TEST(ShmKillTest, NothingIsLeftInDevShm) {
  const std::set<std::string> before = NamesInDevShm();
  HitOne(3, 1, SIGKILL, 60, 50'000, true);
  for (const std::string& name : NamesInDevShm()) {
    // Other programs may come and go meanwhile: ours would carry our name.
    EXPECT_TRUE(before.count(name) == 1 || name.find("cria") == std::string::npos) << name;
  }
}

TEST(ShmForkTest, ForkedChildDisturbsNobody) {
  const auto outcomes = RunShmProcesses(2,
                                        [](ShmProcess& self) {
                                          ShmRank& rank = *self.rank;
                                          if (!AllReduce(rank, 50'000).ok())
                                            return std::string("first");
                                          auto buffer = rank.domain().Allocate(int64_t{8} << 20);
                                          auto* data = static_cast<int*>((*buffer)->data());
                                          std::iota(data, data + 1000, rank.rank());
                                          const pid_t child = fork();
                                          if (child == 0) {
                                            // As a child does that ends in main: its copies of
                                            // everything are destroyed.
                                            buffer->reset();
                                            ShmRank* copy = self.rank;
                                            ShmDomain* domain = &copy->domain();
                                            copy->~ShmRank();
                                            delete domain;
                                            _exit(7);
                                          }
                                          int status = 0;
                                          waitpid(child, &status, 0);
                                          if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
                                            return std::string("child");
                                          for (int i = 0; i < 1000; ++i) {
                                            if (data[i] != rank.rank() + i)
                                              return std::string("memory");
                                          }
                                          for (int i = 0; i < 10; ++i) {
                                            const Status after = AllReduce(rank, 50'000);
                                            if (!after.ok()) return Message(after);
                                          }
                                          return std::string("fine");
                                        },
                                        0, {});
  EXPECT_EQ(outcomes[0].report, "fine");
  EXPECT_EQ(outcomes[1].report, "fine");
}

}  // namespace
}  // namespace cria::comm

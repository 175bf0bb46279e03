// What a kill or a failing call at any point of a save leaves behind. Each child process dies at
// the n-th file-system call (syscall_faults.h), for every n; nothing here depends on time.
// pytorch-lightning #688 and #19970: a kill during a save corrupted the latest checkpoint.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "tests/unit/trainer/checkpoint/checkpoint_fixture.h"
#include "tests/unit/trainer/checkpoint/syscall_faults.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria::trainer {
namespace {

// Runs `body` in a child with the fault armed. True when it was killed, false when it ran to its
// end.
bool KilledInChild(const Fault& fault, const std::function<Status()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    ArmFault(fault);
    const Status status = body();
    DisarmFault();
    _exit(status.ok() ? 0 : 3);
  }
  EXPECT_GT(child, 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the save failed without being killed";
  return false;
}

std::string Replay(const Fault& fault) {
  return StrCat("fault at call ", fault.at, " action ", static_cast<int>(fault.action),
                fault.no_exchange ? " without exchange" : "");
}

// For every call n and both ways to die: `prepare` in a fresh folder, `body` in a child that dies
// there, then `check`. Ends when the child lives through.
void ForEachKill(const std::string& name, bool no_exchange,
                 const std::function<Status(const std::string&)>& prepare,
                 const std::function<Status(const std::string&)>& body,
                 const std::function<void(const std::string&)>& check) {
  for (const FaultAction action : {FaultAction::kKill, FaultAction::kKillHalfWay}) {
    int num_killed = 0;
    for (int at = 0;; ++at) {
      ASSERT_LT(at, 1000);
      const Fault fault{.at = at, .action = action, .no_exchange = no_exchange};
      SCOPED_TRACE(Replay(fault));
      const std::string dir = FreshFolder(name);
      const Status prepared = prepare(dir);
      ASSERT_TRUE(prepared.ok()) << prepared;
      const bool killed = KilledInChild(fault, [&] { return body(dir); });
      check(dir);
      if (::testing::Test::HasFailure()) return;
      if (!killed) break;
      ++num_killed;
    }
    // mkdir, then four files of open, write, sync, rename, sync, then a rename and a sync.
    EXPECT_GE(num_killed, 20);
  }
}

// The newest verified one is whole and of a step in [least, most]; afterwards a prune leaves only
// checkpoints and a save works.
void CheckRecovers(const std::string& dir, int64_t least, int64_t most) {
  const auto found = FindNewestVerified(dir, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  const Status whole = CheckTiny(*found);
  ASSERT_TRUE(whole.ok()) << whole;
  const int64_t step = LoadCheckpoint(*found)->state().step;
  EXPECT_GE(step, least);
  EXPECT_LE(step, most);
  const Status pruned = PruneCheckpoints(dir, 10);
  ASSERT_TRUE(pruned.ok()) << pruned;
  const std::vector<std::string> names = *ListDir(dir);
  for (const std::string& name : names) {
    EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
    const Status status = CheckTiny(JoinPath(dir, name));
    EXPECT_TRUE(status.ok()) << status;
  }
  const Status saved = SaveTiny(dir, most + 1);
  ASSERT_TRUE(saved.ok()) << saved;
  EXPECT_EQ(*FindNewestVerified(dir, nullptr), CheckpointDir(dir, most + 1));
}

TEST(CheckpointKillTest, LeavesTheOlderCheckpointAtEveryCallOfASave) {
  ForEachKill(
      "kill_new", false, [](const std::string& dir) { return SaveTiny(dir, 1); },
      [](const std::string& dir) { return SaveTiny(dir, 2); },
      [](const std::string& dir) { CheckRecovers(dir, 1, 2); });
}

// The first save ever: there is nothing or all of it.
TEST(CheckpointKillTest, LeavesNothingOrAllOfTheFirstSave) {
  ForEachKill(
      "kill_first", false, [](const std::string&) { return OkStatus(); },
      [](const std::string& dir) { return SaveTiny(JoinPath(dir, "run/checkpoints"), 1); },
      [](const std::string& dir) {
        const auto found = FindNewestVerified(JoinPath(dir, "run/checkpoints"), nullptr);
        if (found.ok()) {
          EXPECT_TRUE(CheckTiny(*found).ok());
        } else {
          EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
          EXPECT_NE(Message(found.status()).find("there is no checkpoint"), std::string::npos)
              << found.status();
        }
        EXPECT_TRUE(SaveTiny(JoinPath(dir, "run/checkpoints"), 2).ok());
      });
}

void CheckReplaced(const std::string& dir) {
  const auto found = FindNewestVerified(dir, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(LoadCheckpoint(*found)->state().step, 2);
  const Status whole = CheckTiny(*found);
  EXPECT_TRUE(whole.ok()) << whole;
  CheckRecovers(dir, 2, 2);
}

TEST(CheckpointKillTest, LeavesOldOrNewWhenAStepIsSavedAgain) {
  const auto prepare = [](const std::string& dir) -> Status {
    CRIA_RETURN_IF_ERROR(SaveTiny(dir, 1));
    return SaveTiny(dir, 2, 0);
  };
  const auto save_again = [](const std::string& dir) { return SaveTiny(dir, 2, 1); };
  ForEachKill("kill_again", false, prepare, save_again, CheckReplaced);
  ForEachKill("kill_again_old", true, prepare, save_again, CheckReplaced);
  // The same after a first kill between the renames, which left step_2.old too.
  const auto prepare_both = [&](const std::string& dir) -> Status {
    CRIA_RETURN_IF_ERROR(prepare(dir));
    CRIA_RETURN_IF_ERROR(Rename(CheckpointDir(dir, 2), CheckpointDir(dir, 2) + ".old"));
    return SaveTiny(dir, 2, 0);
  };
  ForEachKill("kill_again_both", true, prepare_both, save_again, CheckReplaced);
}

TEST(CheckpointKillTest, PruneNeverLosesTheNewestAndLeavesNoTornOnes) {
  ForEachKill(
      "kill_prune", false,
      [](const std::string& dir) -> Status {
        for (int step = 1; step <= 5; ++step) CRIA_RETURN_IF_ERROR(SaveTiny(dir, step));
        return OkStatus();
      },
      [](const std::string& dir) { return PruneCheckpoints(dir, 1); },
      [](const std::string& dir) {
        ASSERT_EQ(*FindNewestVerified(dir, nullptr), CheckpointDir(dir, 5));
        CheckRecovers(dir, 5, 5);
      });
}

// A run that saves and prunes, killed at 20 seeded points.
TEST(CheckpointKillTest, ARunGoesOnFromWhereItWasKilled) {
  const auto run = [](const std::string& dir) -> Status {
    for (int step = 1; step <= 6; ++step) {
      CRIA_RETURN_IF_ERROR(SaveTiny(dir, step));
      CRIA_RETURN_IF_ERROR(PruneCheckpoints(dir, 2, step));
    }
    return OkStatus();
  };
  ArmFault({});
  ASSERT_TRUE(run(FreshFolder("count")).ok());
  const int num_calls = DisarmFault();
  ASSERT_GT(num_calls, 100);
  const Rng rng(2026, StreamOf("kill points"));
  for (int i = 0; i < 20; ++i) {
    const std::string dir = FreshFolder("kill_run");
    ASSERT_TRUE(SaveTiny(dir, 0).ok());
    const Fault fault{
        .at = static_cast<int>(rng.Below(2 * i, static_cast<uint64_t>(num_calls))),
        .action = rng.Below(2 * i + 1, 2) == 0 ? FaultAction::kKill : FaultAction::kKillHalfWay};
    SCOPED_TRACE(Replay(fault));
    EXPECT_TRUE(KilledInChild(fault, [&] { return run(dir); }));
    CheckRecovers(dir, 0, 6);
  }
}

// NeMo Automodel PR #3390: a full disk left a pointer to a stale checkpoint.
TEST(CheckpointErrorTest, LeavesTheOlderCheckpointWhenAnyCallFails) {
  for (const int error_number : {ENOSPC, EIO, EROFS}) {
    for (const bool sticky : {false, true}) {
      for (int at = 0;; ++at) {
        ASSERT_LT(at, 1000);
        SCOPED_TRACE(StrCat(std::strerror(error_number), " at call ", at, sticky ? " and on" : ""));
        const std::string dir = FreshFolder("errors");
        ASSERT_TRUE(SaveTiny(dir, 1).ok());
        ArmFault({.at = at,
                  .action = FaultAction::kFail,
                  .error_number = error_number,
                  .sticky = sticky});
        const Status status = SaveTiny(dir, 2);
        const int num_calls = DisarmFault();
        const auto found = FindNewestVerified(dir, nullptr);
        ASSERT_TRUE(found.ok()) << found.status();
        ASSERT_TRUE(CheckTiny(*found).ok());
        if (status.ok()) {
          ASSERT_EQ(*found, CheckpointDir(dir, 2));
          ASSERT_LE(num_calls, at) << "a call failed and the save did not notice";
          break;
        }
        const std::string message = Message(status);
        ASSERT_NE(message.find(CheckpointDir(dir, 2)), std::string::npos) << message;
        ASSERT_NE(message.find(std::strerror(error_number)), std::string::npos) << message;
        CheckRecovers(dir, 1, 2);
      }
    }
  }
}

TEST(CheckpointErrorTest, ReplacingAStepKeepsTheOldOneWhenAnyCallFails) {
  for (const bool no_exchange : {false, true}) {
    for (int at = 0;; ++at) {
      ASSERT_LT(at, 1000);
      SCOPED_TRACE(StrCat("call ", at));
      const std::string dir = FreshFolder("errors_again");
      ASSERT_TRUE(SaveTiny(dir, 2, 0).ok());
      ArmFault({.at = at,
                .action = FaultAction::kFail,
                .error_number = EIO,
                .no_exchange = no_exchange});
      const Status status = SaveTiny(dir, 2, 1);
      const int num_calls = DisarmFault();
      const auto found = FindNewestVerified(dir, nullptr);
      ASSERT_TRUE(found.ok()) << found.status();
      ASSERT_TRUE(CheckTiny(*found).ok());
      CheckRecovers(dir, 2, 2);
      if (status.ok() && num_calls <= at) break;
    }
  }
}

}  // namespace
}  // namespace cria::trainer

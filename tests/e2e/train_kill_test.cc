// kill -9 at twenty random points of a run that saves after each step, so that many fall inside a
// save. Each time `--resume auto` goes on; at the end metrics and checkpoint are, bit for bit,
// those of a run that nobody killed.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria {
namespace {

// Counts what happens in a folder: checkpoints that are begun, renamed, removed.
class FolderEvents {
 public:
  explicit FolderEvents(const std::string& dir) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    inotify_add_watch(fd_, dir.c_str(), IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE);
  }
  ~FolderEvents() { close(fd_); }

  // Waits for `count` events more, or until `ended` says that there will be none.
  bool Wait(uint64_t count, const std::function<bool()>& ended) {
    alignas(inotify_event) char buffer[4096];
    const double deadline = RealClock()->MonotonicSeconds() + kDeadlineSeconds;
    for (uint64_t seen = 0; seen < count;) {
      pollfd ready = {.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 20) == 0 && (ended() || RealClock()->MonotonicSeconds() > deadline)) {
        return false;
      }
      const ssize_t bytes = read(fd_, buffer, sizeof(buffer));
      for (ssize_t at = 0; at < bytes; ++seen) {
        at += static_cast<ssize_t>(sizeof(inotify_event)) +
              reinterpret_cast<const inotify_event*>(buffer + at)->len;
      }
    }
    return true;
  }

 private:
  const int fd_;
};

// Passes that much time without giving the core away: the point after an event where a kill falls.
void Spin(double seconds) {
  const double end = RealClock()->MonotonicSeconds() + seconds;
  while (RealClock()->MonotonicSeconds() < end) {
  }
}

class TrainKillTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Precisions, TrainKillTest, testing::Values("fp32", "fp8_delayed"),
                         [](const auto& info) { return info.param; });

TEST_P(TrainKillTest, TwentyKillsLeaveNoTrace) {
  constexpr int kKills = 20;
  constexpr int64_t kSteps = 80;
  const std::vector<std::string> settings = {StrCat("precision=", GetParam()),
                                             StrCat("steps=", kSteps),
                                             "checkpoint.every=1",
                                             "checkpoint.keep=2",
                                             "train.ramp_batch=[2, 3]",
                                             "train.ramp_until=[10, 30]",
                                             "train.eval_every=7"};
  const std::string whole = FreshDir("whole"), out = FreshDir("killed");
  const Ended uninterrupted = RunProcess(TrainArgs(whole, {}, settings));
  ASSERT_EQ(uninterrupted.exit_code, 0) << uninterrupted.err;

  const char* const seed_text = std::getenv("CRIA_KILL_SEED");
  const uint64_t seed = seed_text == nullptr ? 1 : std::strtoull(seed_text, nullptr, 10);
  SCOPED_TRACE(StrCat("CRIA_KILL_SEED=", seed, " replays the points, if not the machine's pace"));
  const Rng rng(seed, StreamOf("kill points"));
  const std::string checkpoints = JoinPath(out, "checkpoints");
  ASSERT_TRUE(MakeDirs(checkpoints).ok());
  int num_kills = 0, num_inside_a_save = 0;
  for (uint64_t draw = 0; num_kills < kKills; draw += 2) {
    FolderEvents events(checkpoints);
    Process train(TrainArgs(out, {"--resume", "auto"}, settings));
    // A step is three or more events; a life gets on by about three steps.
    const bool came = events.Wait(1 + rng.Below(draw, 18), [&] { return train.ended(); });
    if (!came) {
      const Ended ended = train.Wait();
      ASSERT_EQ(ended.exit_code, 0) << ended.err;  // done before twenty kills: begin again
      ASSERT_TRUE(RemoveAll(out).ok());
      ASSERT_TRUE(MakeDirs(checkpoints).ok());
      continue;
    }
    Spin(0.004 * rng.Uniform(draw + 1));
    train.Signal(SIGKILL);
    ASSERT_EQ(train.Wait().signal, SIGKILL);
    ++num_kills;
    bool inside = false;
    for (const std::string& name : ListDir(checkpoints).value_or(std::vector<std::string>())) {
      inside |= name.find(".tmp") != std::string::npos;
    }
    num_inside_a_save += inside;
    // What is called a checkpoint is one, at each of the twenty points.
    std::vector<std::string> rejected;
    const StatusOr<std::string> newest = trainer::FindNewestVerified(checkpoints, &rejected);
    EXPECT_TRUE(rejected.empty()) << rejected[0];
    EXPECT_TRUE(newest.ok() || newest.status().code() == StatusCode::kNotFound);
  }
  const Ended last = RunProcess(TrainArgs(out, {"--resume", "auto"}, settings));
  ASSERT_EQ(last.exit_code, 0) << last.err;
  RecordProperty("kills_inside_a_save", num_inside_a_save);
  EXPECT_GE(num_inside_a_save, 1)
      << "no kill fell inside a save: the test proves less than it says";
  EXPECT_EQ(MetricsWithoutSpeed(out), MetricsWithoutSpeed(whole));
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(out, kSteps)) ==
              ReadCheckpointBytes(StepDir(whole, kSteps)));
  EXPECT_EQ(ListDir(checkpoints).value(), ListDir(JoinPath(whole, "checkpoints")).value());
}

}  // namespace
}  // namespace cria

// Rows about ranks that disagree, fall silent, die or give up.

#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/str.h"
#include "comm/api/error.h"
#include "comm/conformance/case.h"

namespace cria::comm {
namespace {

constexpr double kShortSeconds = 3;  // time-outs here; the machine may be busy

// Runs one call that disagrees, in a group of its own, and returns what this rank got.
template <typename Call>
StatusOr<Status> InGroup(CaseContext& context, const std::string& name, const Call& call) {
  CRIA_ASSIGN_OR_RETURN(auto group, context.Everybody(name));
  group->SetTimeout(kShortSeconds);
  const Status status = call(group.get());
  // All see their outcome before anyone leaves.
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  return status;
}

Status ExpectMismatch(const Status& status, const std::string& what) {
  return Expect(status.code() == StatusCode::kInvalidArgument, what, ": the rank got \"",
                Message(status), "\"");
}

Status CountMismatch(CaseContext& context) {
  std::vector<float> x(4096, 1), y(16384, 0);
  const bool odd = context.rank() == 1;
  for (const int64_t count : {int64_t{1}, int64_t{100}}) {
    const int64_t mine = odd ? 2 * count : count;
    const std::string numbers = StrCat(count, " against ", 2 * count);
    CRIA_ASSIGN_OR_RETURN(
        const Status reduced, InGroup(context, StrCat("reduce", count), [&](Communicator* comm) {
          return comm->AllReduce({.input = x.data(), .output = y.data(), .count = mine}).Wait();
        }));
    CRIA_RETURN_IF_ERROR(ExpectMismatch(reduced, "all_reduce of " + numbers));
    CRIA_ASSIGN_OR_RETURN(
        const Status gathered, InGroup(context, StrCat("gather", count), [&](Communicator* comm) {
          return comm->AllGather({.input = x.data(), .output = y.data(), .count = mine}).Wait();
        }));
    CRIA_RETURN_IF_ERROR(ExpectMismatch(gathered, "all_gather of " + numbers));
    CRIA_ASSIGN_OR_RETURN(const Status broadcast,
                          InGroup(context, StrCat("broadcast", count), [&](Communicator* comm) {
                            return comm->Broadcast({.buffer = y.data(), .count = mine}).Wait();
                          }));
    CRIA_RETURN_IF_ERROR(ExpectMismatch(broadcast, "broadcast of " + numbers));
  }
  return OkStatus();
}

Status MismatchNamed(CaseContext& context) {
  std::vector<float> x(64, 1), y(256, 0);
  const bool odd = context.rank() == 1;
  CRIA_ASSIGN_OR_RETURN(
      const Status status, InGroup(context, "named", [&](Communicator* comm) {
        return comm->AllReduce({.input = x.data(), .output = y.data(), .count = odd ? 20 : 10})
            .Wait();
      }));
  CRIA_RETURN_IF_ERROR(ExpectMismatch(status, "all_reduce of 10 against 20"));
  const auto error = GetCommError(status);
  CRIA_RETURN_IF_ERROR(Expect(error.has_value(), "no typed error: ", Message(status)));
  CRIA_RETURN_IF_ERROR(Expect(error->operation == "all_reduce" && error->sequence == 1 &&
                                  error->group == "named" && error->rank == context.rank() &&
                                  error->bytes == (odd ? 80 : 40),
                              "rank, operation, number or size are not told: ", Message(status)));
  CRIA_RETURN_IF_ERROR(Expect(error->culprit >= 0 &&
                                  (odd ? error->culprit != 1 : error->culprit == 1) &&
                                  error->culprit_bytes == (odd ? 40 : 80),
                              "the other side is not told: ", Message(status)));
  // Different operations.
  CRIA_ASSIGN_OR_RETURN(
      const Status kinds, InGroup(context, "kinds", [&](Communicator* comm) {
        if (odd) {
          return comm->Broadcast({.buffer = y.data(), .count = 10}).Wait();
        }
        return comm->AllReduce({.input = x.data(), .output = y.data(), .count = 10}).Wait();
      }));
  return ExpectMismatch(kinds, "all_reduce against broadcast");
}

// A call that waits for a rank that does not come must end soon after the abort.
Status ExpectAborted(const Status& status, double seconds, const std::string& what) {
  CRIA_RETURN_IF_ERROR(
      Expect(status.code() == StatusCode::kCancelled, what, ": got \"", Message(status), "\""));
  CRIA_RETURN_IF_ERROR(Expect(Message(status).find("for a reason") != std::string::npos, what,
                              ": the reason is lost: ", Message(status)));
  return Expect(seconds < 1, what, ": took ", seconds, " s");
}

Status AbortEverywhere(CaseContext& context) {
  std::vector<float> x(1 << 16, 1);
  const bool stays_away = context.rank() == context.size() - 1;
  const auto reduce = [&x](Communicator* comm) {
    return comm
        ->AllReduce(
            {.input = x.data(), .output = x.data(), .count = static_cast<int64_t>(x.size())})
        .Wait();
  };
  // In the middle of an operation: one rank stays away, and aborts.
  CRIA_ASSIGN_OR_RETURN(auto middle, context.Everybody("middle"));
  CRIA_ASSIGN_OR_RETURN(auto other, context.Everybody("other"));
  CRIA_RETURN_IF_ERROR(reduce(middle.get()));
  CRIA_RETURN_IF_ERROR(reduce(other.get()));
  if (stays_away) {
    poll(nullptr, 0, 200);
    const double start_s = Now();
    middle->Abort("for a reason");
    const Status status = reduce(middle.get());
    CRIA_RETURN_IF_ERROR(ExpectAborted(status, Now() - start_s, "the aborter"));
  } else {
    const double start_s = Now();
    const Status status = reduce(middle.get());
    CRIA_RETURN_IF_ERROR(ExpectAborted(status, Now() - start_s - 0.2, "a peer in the operation"));
  }
  // The other communicator still works.
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  CRIA_RETURN_IF_ERROR(reduce(other.get()));
  // From another thread of a rank that waits; the others wait as well, but for one.
  if (!stays_away) {
    const double start_s = Now();
    std::thread aborter([&] {
      poll(nullptr, 0, 200);
      if (context.rank() == 0) other->Abort("for a reason");
    });
    const Status status = reduce(other.get());
    const double after_s = Now() - start_s - 0.2;
    aborter.join();
    CRIA_RETURN_IF_ERROR(ExpectAborted(status, after_s, "aborted by a thread"));
  }
  // At the first use of a group, in which nobody has met anybody.
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  CRIA_ASSIGN_OR_RETURN(auto first, context.Everybody("first use"));
  const double first_s = Now();
  if (stays_away) {
    poll(nullptr, 0, 200);
    first->Abort("for a reason");
  } else {
    CRIA_RETURN_IF_ERROR(
        ExpectAborted(reduce(first.get()), Now() - first_s - 0.2, "at the first use"));
  }
  // Idle, and twice.
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  CRIA_ASSIGN_OR_RETURN(auto idle, context.Everybody("idle"));
  idle->Abort("for a reason");
  idle->Abort("for another");
  return ExpectAborted(reduce(idle.get()), 0, "an idle communicator");
}

Status AbortedChain(CaseContext& context) {
  // Each rank waits for a message of the one before; the first gives up.
  CRIA_ASSIGN_OR_RETURN(auto chain, context.Everybody("chain"));
  std::vector<float> x(16, 1);
  const int n = context.size();
  // A first message, so that all have met.
  CRIA_RETURN_IF_ERROR(CheckCollective(chain.get(), {.kind = OpKind::kSend, .count = 16}));
  if (context.rank() == 0) {
    poll(nullptr, 0, 200);
    chain->Abort("for a reason");
    return context.board->Barrier();
  }
  const double start_s = Now();
  const Status status =
      chain->Recv({.buffer = x.data(), .count = 16, .peer = (context.rank() + n - 1) % n}).Wait();
  CRIA_RETURN_IF_ERROR(ExpectAborted(status, Now() - start_s - 0.2, "a link of the chain"));
  return context.board->Barrier();
}

Status AbortedMessages(CaseContext& context) {
  CRIA_RETURN_IF_ERROR(AbortedChain(context));
  // The others wait for each other, at the first use of a group: who aborts exchanges nothing.
  CRIA_ASSIGN_OR_RETURN(auto group, context.Everybody("strangers"));
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  if (context.rank() == 0) {
    poll(nullptr, 0, 200);
    group->Abort("for a reason");
    return context.board->Barrier();
  }
  float x = 0;
  const double start_s = Now();
  const Status status =
      group->Recv({.buffer = &x, .count = 1, .peer = context.size() - context.rank()}).Wait();
  CRIA_RETURN_IF_ERROR(ExpectAborted(status, Now() - start_s - 0.2, "a stranger's abort"));
  return context.board->Barrier();
}

Status KilledPeer(CaseContext& context) {
  // The last rank dies in the middle; every future of the others completes.
  std::vector<float> x(1 << 20, 1), y(1 << 20, 0);
  const auto reduce = [&](bool async) {
    return context.world->AllReduce({.input = x.data(),
                                     .output = y.data(),
                                     .count = static_cast<int64_t>(x.size()),
                                     .call = {.timeout_s = 20, .async = async}});
  };
  CRIA_RETURN_IF_ERROR(reduce(false).Wait());
  const int victim = context.size() - 1;
  if (context.rank() == victim) {
    const Work work = reduce(true);
    poll(nullptr, 0, 20);
    raise(SIGKILL);
  }
  const double start_s = Now();
  std::vector<Work> works;
  Status status;
  // The victim gives one more operation, perhaps.
  for (int i = 0; i < 4; ++i) works.push_back(reduce(true));
  for (const Work& work : works) status = work.Wait();
  CRIA_RETURN_IF_ERROR(Expect(!status.ok(), "an all_reduce without rank ", victim, " went well"));
  CRIA_RETURN_IF_ERROR(Expect(Now() - start_s < 10, "it took ", Now() - start_s, " s"));
  const auto error = GetCommError(status);
  return Expect(error.has_value() && error->culprit == victim, "the dead rank ", victim,
                " is not named: ", Message(status));
}

Status TimeoutHonoured(CaseContext& context) {
  constexpr double kTimeout = 1.0;
  CRIA_ASSIGN_OR_RETURN(auto group, context.Everybody("alone"));
  CRIA_RETURN_IF_ERROR(group->Barrier().Wait());
  if (context.rank() == 0) {
    float x = 1;
    const double start_s = Now();
    const Status status =
        group->AllReduce({.input = &x, .output = &x, .count = 1, .call = {.timeout_s = kTimeout}})
            .Wait();
    const double seconds = Now() - start_s;
    CRIA_RETURN_IF_ERROR(
        Expect(status.code() == StatusCode::kDeadlineExceeded, "got \"", Message(status), "\""));
    // 10 %; and what a busy machine adds.
    CRIA_RETURN_IF_ERROR(Expect(seconds > 0.9 * kTimeout && seconds < 1.1 * kTimeout + 0.4,
                                "a time-out of ", kTimeout, " s took ", seconds, " s"));
  }
  return context.board->Barrier();
}

Status StoppedRankNamed(CaseContext& context) {
  // One rank stands still; the others' verdict names it, not each other.
  const int stopped = context.size() - 1;
  CRIA_ASSIGN_OR_RETURN(const auto pids, context.board->Gather(static_cast<double>(getpid())));
  std::vector<float> x(1000, 1), y(1000, 0);
  const auto reduce = [&](double timeout_s) {
    return context.world
        ->AllReduce({.input = x.data(),
                     .output = y.data(),
                     .count = 1000,
                     .call = {.timeout_s = timeout_s}})
        .Wait();
  };
  CRIA_RETURN_IF_ERROR(reduce(30));
  if (context.rank() == stopped) {
    raise(SIGSTOP);
    return OkStatus();
  }
  poll(nullptr, 0, 100);
  const Status status = reduce(1.5);
  // Those that ran out of time together may still ask each other.
  poll(nullptr, 0, 300);
  if (context.rank() == 0) {
    poll(nullptr, 0, 300);
    kill(static_cast<pid_t>(pids[static_cast<size_t>(stopped)]), SIGCONT);
  }
  const auto error = GetCommError(status);
  return Expect(error.has_value() && error->culprit == stopped && error->operation == "all_reduce",
                "the stopped rank ", stopped, " is not named: ", Message(status));
}

std::array<int, 2> signal_pipe = {-1, -1};

Status AbortInHandler(CaseContext& context) {
  // A signal wakes a thread that aborts; then again, when all is over already.
  CRIA_ASSIGN_OR_RETURN(auto group, context.Everybody("signalled"));
  CRIA_RETURN_IF_ERROR(group->Barrier().Wait());
  if (context.rank() == 0) {
    if (pipe(signal_pipe.data()) != 0) return InternalError("pipe failed");
    std::thread aborter([&] {
      char byte = 0;
      if (read(signal_pipe[0], &byte, 1) == 1) group->Abort("for a reason");
    });
    struct sigaction action = {};
    action.sa_handler = [](int) {
      const char byte = 1;
      [[maybe_unused]] const ssize_t written = write(signal_pipe[1], &byte, 1);
    };
    struct sigaction before = {};
    sigaction(SIGUSR1, &action, &before);
    std::thread sender([] {
      poll(nullptr, 0, 200);
      kill(getpid(), SIGUSR1);
    });
    const double start_s = Now();
    const Status status = group->Barrier().Wait();
    const double seconds = Now() - start_s - 0.2;
    sender.join();
    aborter.join();
    sigaction(SIGUSR1, &before, nullptr);
    CRIA_RETURN_IF_ERROR(ExpectAborted(status, seconds, "by a signal"));
    group->Abort("once more");
    CRIA_RETURN_IF_ERROR(ExpectAborted(group->Barrier().Wait(), 0, "after the error"));
  }
  return context.board->Barrier();
}

}  // namespace

std::vector<Case> ErrorCases() {
  return {
      {.name = "count_mismatch",
       .row = 3,
       .reports = "nccl#1394",
       .what = "ranks that pass different counts all get an error",
       .ranks = {2, 3},
       .body = &CountMismatch},
      {.name = "mismatch_named",
       .row = 5,
       .reports = "nccl#296, #531, #969, #1328",
       .what = "the error names rank, operation, number and both sizes",
       .ranks = {2, 3},
       .body = &MismatchNamed},
      {.name = "abort_everywhere",
       .row = 18,
       .reports = "nccl#863, #992, #1013, #549, #1777",
       .what = "abort from a peer, a thread, at first use, idle: every wait ends within 1 s",
       .ranks = {2, 3},
       .body = &AbortEverywhere},
      {.name = "aborted_chain",
       .row = 19,
       .reports = "pytorch#113281",
       .what = "all who wait for messages learn of an abort",
       .ranks = {3},
       .body = &AbortedMessages},
      {.name = "killed_peer",
       .row = 20,
       .reports = "mlx#3862",
       .what = "after SIGKILL every future of the others ends, naming the dead",
       .ranks = {2, 3},
       .body = &KilledPeer,
       .dies = 1},
      {.name = "timeout_honoured",
       .row = 22,
       .reports = "pytorch#88000, #107177",
       .what = "an operation that only one rank calls ends at its time-out",
       .ranks = {2},
       .body = &TimeoutHonoured},
      {.name = "stopped_rank_named",
       .row = 23,
       .reports = "nccl#1324, #394, #377",
       .what = "the time-out names the rank that stands still",
       .ranks = {3},
       .body = &StoppedRankNamed,
       .dies = 1},
      {.name = "abort_in_handler",
       .row = 40,
       .reports = "ompi#3225",
       .what = "abort out of a signal, and after an error",
       .ranks = {2},
       .body = &AbortInHandler},
  };
}

}  // namespace cria::comm

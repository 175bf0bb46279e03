// Rows about joining: limits, storms, interfaces, forks, settings that differ.

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "base/file.h"
#include "base/str.h"
#include "comm/conformance/case.h"

namespace cria::comm {
namespace {

Status FewDescriptors(CaseContext& context) {
  // One file descriptor to join with: an error, no crash and no hang.
  rlimit few = {};
  getrlimit(RLIMIT_NOFILE, &few);
  few.rlim_cur = std::min<rlim_t>(few.rlim_cur, 64);
  setrlimit(RLIMIT_NOFILE, &few);
  // The limit is on numbers, not on how many there are: all gaps are filled, then one is freed.
  int last = -1;
  for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) last = fd;
  CRIA_RETURN_IF_ERROR(Expect(last >= 0, "no file descriptor was free at the start"));
  close(last);
  const auto joined = context.Join(5);
  return Expect(!joined.ok(), "joined with one file descriptor");
}

Status StartStorm(CaseContext& context) {
  // All start at the same moment, then meet.
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  CRIA_ASSIGN_OR_RETURN(const Joined joined, context.Join(60));
  return CheckCollective(joined.world.get(), {.kind = OpKind::kAllReduce, .count = 100});
}

// Inodes of this process's TCP sockets that are connected.
StatusOr<int> ConnectedTcpSockets() {
  std::set<std::string> connected;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    const auto text = ReadFile(table);
    if (!text.ok()) continue;
    // "sl local remote st queues timer retransmits uid timeout inode": state 01, then the inode.
    size_t line = text->find('\n');
    while (line != std::string::npos && line + 1 < text->size()) {
      const size_t end = text->find('\n', line + 1);
      std::array<char, 64> state = {}, inode = {};
      if (std::sscanf(text->c_str() + line + 1, "%*s %*s %*s %63s %*s %*s %*s %*s %*s %63s",
                      state.data(), inode.data()) == 2 &&
          std::string(state.data()) == "01") {
        connected.insert(inode.data());
      }
      line = end;
    }
  }
  CRIA_ASSIGN_OR_RETURN(const auto descriptors, ListDir("/proc/self/fd"));
  int count = 0;
  for (const std::string& name : descriptors) {
    std::array<char, 128> link = {};
    const std::string path = "/proc/self/fd/" + name;
    if (readlink(path.c_str(), link.data(), link.size() - 1) <= 0) continue;
    const std::string target = link.data();
    if (target.rfind("socket:[", 0) != 0) continue;
    count += connected.count(target.substr(8, target.size() - 9)) > 0;
  }
  return count;
}

Status ConnectionsUsed(CaseContext& context) {
  // A ring of 8 needs two neighbours, not seven.
  setenv("CRIA_COMM_TRANSPORT", "tcp", 1);
  setenv("CRIA_COMM_ALGO", "all_reduce:ring", 1);
  CRIA_ASSIGN_OR_RETURN(const Joined joined, context.Join(60));
  CRIA_RETURN_IF_ERROR(
      CheckCollective(joined.world.get(), {.kind = OpKind::kAllReduce, .count = 1000}));
  CRIA_ASSIGN_OR_RETURN(const int connections, ConnectedTcpSockets());
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  return Expect(connections < context.size() - 1, connections, " TCP connections for a ring of ",
                context.size());
}

Status InterfaceChoice(CaseContext& context) {
  setenv("CRIA_COMM_TRANSPORT", "tcp", 1);
  setenv("CRIA_COMM_INTERFACE", "no-such-interface", 1);
  const auto refused = context.Join(5);
  CRIA_RETURN_IF_ERROR(
      Expect(!refused.ok() && refused.status().code() != StatusCode::kDeadlineExceeded,
             "an interface that is not there: ", Message(refused.status())));
  CRIA_RETURN_IF_ERROR(Expect(Message(refused.status()).find("lo") != std::string::npos,
                              "the error lists no candidates: ", Message(refused.status())));
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  setenv("CRIA_COMM_INTERFACE", context.rank() % 2 == 0 ? "lo" : "127.0.0.0/8", 1);
  CRIA_ASSIGN_OR_RETURN(const Joined joined, context.Join(30));
  return CheckCollective(joined.world.get(), {.kind = OpKind::kAllReduce, .count = 100});
}

// What a program that this process starts would inherit of the library: nothing.
Status ExpectClosedOnExec() {
  CRIA_ASSIGN_OR_RETURN(const auto descriptors, ListDir("/proc/self/fd"));
  for (const std::string& name : descriptors) {
    const int fd = std::atoi(name.c_str());
    std::array<char, 128> link = {};
    if (fd <= STDERR_FILENO) continue;
    if (readlink(("/proc/self/fd/" + name).c_str(), link.data(), link.size() - 1) <= 0) continue;
    const std::string target = link.data();
    const bool of_library = target.rfind("socket:", 0) == 0 || target.rfind("/memfd:", 0) == 0 ||
                            target.rfind("anon_inode:", 0) == 0;
    const int flags = fcntl(fd, F_GETFD);
    CRIA_RETURN_IF_ERROR(Expect(!of_library || flags < 0 || (flags & FD_CLOEXEC) != 0,
                                "a started program inherits descriptor ", fd, ", ", target));
  }
  return OkStatus();
}

Status ForkAfterInit(CaseContext& context) {
  CRIA_RETURN_IF_ERROR(CheckCollective(context.world, {.kind = OpKind::kAllReduce, .count = 100}));
  const pid_t child = fork();
  if (child == 0) {
    // A hang ends by the alarm, a crash by its signal.
    alarm(5);
    float x = 1;
    const Status status =
        context.world->AllReduce({.input = &x, .output = &x, .count = 1, .call = {.timeout_s = 3}})
            .Wait();
    _exit(status.ok() ? 1 : status.code() == StatusCode::kDeadlineExceeded ? 2 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  // The parents go on.
  CRIA_RETURN_IF_ERROR(CheckCollective(context.world, {.kind = OpKind::kAllReduce, .count = 1000}));
  CRIA_RETURN_IF_ERROR(Expect(WIFEXITED(status), "the child's use ended by signal ",
                              WIFSIGNALED(status) ? WTERMSIG(status) : 0));
  CRIA_RETURN_IF_ERROR(Expect(WEXITSTATUS(status) == 0,
                              WEXITSTATUS(status) == 1 ? "the child took part in a collective"
                                                       : "the child waited until its time-out"));
  return ExpectClosedOnExec();
}

Status SettingsDiffer(CaseContext& context) {
  // Ranks whose settings choose different algorithms.
  setenv("CRIA_COMM_ALGO", context.rank() == 1 ? "all_reduce:ring" : "all_reduce:flat", 1);
  CRIA_ASSIGN_OR_RETURN(const Joined joined, context.Join(30));
  float x[100] = {};
  const Status status =
      joined.world->AllReduce({.input = x, .output = x, .count = 100, .call = {.timeout_s = 5}})
          .Wait();
  CRIA_RETURN_IF_ERROR(context.board->Barrier());
  return Expect(status.code() == StatusCode::kInvalidArgument, "different algorithms: got \"",
                Message(status), "\"");
}

}  // namespace

std::vector<Case> StartCases() {
  return {
      {.name = "few_descriptors",
       .row = 28,
       .reports = "gloo#327, ADIOS2#813",
       .what = "too few file descriptors are an error, no crash",
       .ranks = {2},
       .body = &FewDescriptors,
       .joins_itself = true},
      {.name = "start_storm",
       .row = 29,
       .reports = "pytorch#76913, PR 129261, 128739",
       .what = "24 ranks that start at one moment meet",
       .ranks = {24},
       .body = &StartStorm,
       .limit_s = 90,
       .joins_itself = true},
      {.name = "connections_used",
       .row = 30,
       .reports = "horovod#3556, gloo#419",
       .what = "connections are those that the plan uses, not a full mesh",
       .ranks = {8},
       .body = &ConnectionsUsed,
       .joins_itself = true},
      {.name = "interface_choice",
       .row = 31,
       .reports = "sglang#3226, gpustack#2125, nccl#377",
       .what = "interfaces by name and by CIDR; an error lists what there is",
       .ranks = {2},
       .body = &InterfaceChoice,
       .joins_itself = true,
       .impls = {"cria"}},
      {.name = "fork_after_init",
       .row = 32,
       .reports = "uccl#895, Megatron-Bridge#1860",
       .what = "a forked child gets an error, its parent goes on, programs inherit nothing",
       .ranks = {2},
       .body = &ForkAfterInit},
      {.name = "settings_differ",
       .row = 36,
       .reports = "NCCL 2.24 and 2.26 notes",
       .what = "ranks that would choose different algorithms all get an error",
       .ranks = {3},
       .body = &SettingsDiffer,
       .joins_itself = true,
       .impls = {"cria"}},
  };
}

}  // namespace cria::comm

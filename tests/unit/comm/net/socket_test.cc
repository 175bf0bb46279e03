#include "comm/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace cria::comm {
namespace {

double In(double seconds) { return RealClock()->MonotonicSeconds() + seconds; }

struct Served {
  Fd listener;
  SocketAddress address;
};

Served ListenOn(const char* host, int backlog = 16) {
  Served served;
  served.listener = *Listen(*ParseAddress(host, 0), backlog);
  served.address = *LocalAddress(served.listener.get());
  return served;
}

TEST(SocketTest, MovesBytesBothWays) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    Served served = ListenOn(host);
    ASSERT_GT(served.address.port(), 0);
    const StatusOr<Fd> client = Connect(served.address, In(20));
    ASSERT_TRUE(client.ok()) << client.status();
    const StatusOr<Fd> server = Accept(served.listener.get(), In(20));
    ASSERT_TRUE(server.ok()) << server.status();
    std::vector<std::byte> sent(3 << 20);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31 >> 3);
    std::vector<std::byte> got(sent.size());
    std::thread sender([&] { EXPECT_TRUE(SendExactly(client->get(), sent, In(20)).ok()); });
    EXPECT_TRUE(RecvExactly(server->get(), got, In(20)).ok());
    sender.join();
    EXPECT_EQ(sent, got);
  }
}

TEST(SocketTest, SmallMessagesDoNotWaitForOthers) {
  Served served = ListenOn("127.0.0.1");
  const Fd client = *Connect(served.address, In(20));
  const Fd server = *Accept(served.listener.get(), In(20));
  for (const Fd* fd : {&client, &server}) {
    int value = 0;
    socklen_t length = sizeof(value);
    ASSERT_EQ(getsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &value, &length), 0);
    EXPECT_EQ(value, 1);
  }
}

TEST(SocketTest, BytesFindRoomWhileNobodyReads) {
  constexpr int kBytes = 128 << 10;  // twice what the kernel has room for at first
  Served served = ListenOn("127.0.0.1");
  const StatusOr<Fd> client = StartConnect(served.address, 4 * kBytes);
  ASSERT_TRUE(client.ok()) << client.status();
  const Fd server = *Accept(served.listener.get(), In(20));
  const std::vector<std::byte> bytes(kBytes);
  ASSERT_TRUE(SendExactly(server.get(), bytes, In(20)).ok());
  // All of them are there before one of them is read.
  std::vector<std::byte> got(kBytes);
  const double end_s = In(20);
  while (recv(client->get(), got.data(), got.size(), MSG_PEEK) < kBytes &&
         RealClock()->MonotonicSeconds() < end_s) {
    std::this_thread::yield();
  }
  EXPECT_EQ(recv(client->get(), got.data(), got.size(), 0), kBytes);
}

TEST(SocketTest, EndOfStreamIsAClosedPeerWhateverErrnoSays) {
  Served served = ListenOn("127.0.0.1");
  Fd client = *Connect(served.address, In(20));
  Fd server = *Accept(served.listener.get(), In(20));
  const std::array<std::byte, 3> some = {};
  ASSERT_TRUE(SendExactly(client.get(), some, In(20)).ok());
  client.Reset();
  errno = EAGAIN;  // stale: the fault of mlx#3862
  std::array<std::byte, 8> got = {};
  const Status status = RecvExactly(server.get(), got, In(20));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_NE(Message(status).find("after 3 of 8 bytes"), std::string::npos) << status;
}

TEST(SocketTest, SilentPeerEndsAtTheDeadline) {
  Served served = ListenOn("127.0.0.1");
  const Fd client = *Connect(served.address, In(20));
  std::array<std::byte, 8> got = {};
  EXPECT_EQ(RecvExactly(client.get(), got, In(0.05)).code(), StatusCode::kDeadlineExceeded);
  const std::vector<std::byte> much(64 << 20);  // more than any buffer of the kernel
  EXPECT_EQ(SendExactly(client.get(), much, In(0.05)).code(), StatusCode::kDeadlineExceeded);
}

TEST(SocketTest, WritingToAClosedPeerRaisesNoSignal) {
  Served served = ListenOn("127.0.0.1");
  const Fd client = *Connect(served.address, In(20));
  Accept(served.listener.get(), In(20))->Reset();
  const std::vector<std::byte> much(64 << 20);
  EXPECT_EQ(SendExactly(client.get(), much, In(20)).code(), StatusCode::kUnavailable);
}

TEST(SocketTest, ConnectWaitsForAListenerThatComesLate) {
  Fd reserved = *Listen(*ParseAddress("127.0.0.1", 0), 4);
  const SocketAddress address = *LocalAddress(reserved.get());
  reserved.Reset();
  EXPECT_EQ(Connect(address, In(0.05)).status().code(), StatusCode::kDeadlineExceeded);
  StatusOr<Fd> client = Fd();
  std::thread connector([&] { client = Connect(address, In(20)); });
  const StatusOr<Fd> listener = Listen(address, 4);
  ASSERT_TRUE(listener.ok()) << listener.status();
  connector.join();
  EXPECT_TRUE(client.ok()) << client.status();
}

TEST(SocketTest, SocketsDoNotSurviveExec) {
  Served served = ListenOn("127.0.0.1");
  const Fd client = *Connect(served.address, In(20));
  const Fd server = *Accept(served.listener.get(), In(20));
  for (const int fd : {served.listener.get(), client.get(), server.get()}) {
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
}

// One try of a client: says its number, hears it again.
Status SayAndHear(const SocketAddress& address, int number) {
  CRIA_ASSIGN_OR_RETURN(const Fd client, Connect(address, In(60)));
  std::array<std::byte, 4> id = {};
  std::memcpy(id.data(), &number, sizeof(number));
  CRIA_RETURN_IF_ERROR(SendExactly(client.get(), id, In(60)));
  return RecvExactly(client.get(), id, In(60));
}

// pytorch/pytorch#76913: a full backlog reset or lost the clients above it. The kernel may still
// reset one that it let connect, so a client tries again, and the server bears with the dead.
TEST(SocketTest, FiveHundredClientsPassABacklogOfEight) {
  constexpr int kClients = 500;
  constexpr int kThreads = 25;
  Served served = ListenOn("127.0.0.1", /*backlog=*/8);
  std::atomic<int> num_over{0};
  std::vector<Status> outcomes(kClients);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < kClients; i += kThreads) {
        Status& outcome = outcomes[static_cast<size_t>(i)];
        for (int tries = 0; tries < 10; ++tries) {
          outcome = SayAndHear(served.address, i);
          if (outcome.ok()) break;
        }
        ++num_over;
      }
    });
  }
  std::vector<bool> seen(kClients, false);
  while (num_over < kClients) {
    const StatusOr<Fd> server = Accept(served.listener.get(), In(0.2));
    std::array<std::byte, 4> id = {};
    if (!server.ok() || !RecvExactly(server->get(), id, In(60)).ok()) continue;
    int client = -1;
    std::memcpy(&client, id.data(), sizeof(client));
    EXPECT_TRUE(client >= 0 && client < kClients);
    if (client >= 0 && client < kClients) seen[static_cast<size_t>(client)] = true;
    SendExactly(server->get(), id, In(60)).IgnoreError();
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(seen, std::vector<bool>(kClients, true));
}

// pytorch/gloo#327: "too many open files" came as a refused connection. In a process of its own,
// since the limit is the process's.
TEST(SocketTest, NamesTheLimitWhenDescriptorsRunOut) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    const SocketAddress any = *ParseAddress("127.0.0.1", 0);
    std::vector<Fd> open;
    for (int i = 0; i < 100; ++i) {
      StatusOr<Fd> fd = Listen(any, 1);
      if (!fd.ok()) {
        const bool typed = fd.status().code() == StatusCode::kResourceExhausted &&
                           Message(fd.status()).find("64") != std::string::npos;
        _exit(typed ? 0 : 3);
      }
      open.push_back(*std::move(fd));
    }
    _exit(4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SocketTest, SaysWhichAddressIsTaken) {
  Served served = ListenOn("127.0.0.1");
  const Status status = Listen(served.address, 4).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(status).find(served.address.ToString()), std::string::npos) << status;
}

TEST(BackoffTest, DoublesUpToTheLimitAndDiffersBySeed) {
  Backoff backoff(7, 0.01, 0.08);
  Backoff other(8, 0.01, 0.08);
  bool differs = false;
  for (int i = 0; i < 10; ++i) {
    const double nominal = std::min(0.08, 0.01 * (1 << i));
    const double delay = backoff.Next();
    EXPECT_GE(delay, 0.5 * nominal);
    EXPECT_LT(delay, 1.5 * nominal);
    differs |= delay != other.Next();
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace cria::comm

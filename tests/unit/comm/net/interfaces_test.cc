#include "comm/net/interfaces.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

namespace cria::comm {
namespace {

Interface Make(const char* name, const char* address, int bits, bool up, bool bridge = false) {
  Interface interface { .name = name, .up = up, .bridge = bridge };
  if (address != nullptr) interface.addresses.push_back({*ParseAddress(address, 0), bits});
  return interface;
}

std::vector<Interface> Host() {
  return {Make("docker0", "172.17.0.1", 16, true, true),
          Make("br0", "10.9.0.1", 16, true, true),
          Make("eth0", "10.0.0.3", 24, true),
          Make("eth1", "10.1.0.3", 24, false),
          Make("ib0", "fd00::3", 64, true),
          Make("eth2", nullptr, 0, true)};
}

TEST(InterfacesTest, TakesTheNamedOne) {
  EXPECT_EQ(*ChooseAmong(Host(), "eth0"), "10.0.0.3");
  EXPECT_EQ(*ChooseAmong(Host(), "ib0"), "fd00::3");
  EXPECT_EQ(*ChooseAmong(Host(), "br0"), "10.9.0.1");  // told is told
}

TEST(InterfacesTest, TakesTheOneInsideACidrAndBridgesLast) {
  EXPECT_EQ(*ChooseAmong(Host(), "10.0.0.0/8"), "10.0.0.3");  // br0 comes first, but is a bridge
  EXPECT_EQ(*ChooseAmong(Host(), "172.16.0.0/12"), "172.17.0.1");
  EXPECT_EQ(*ChooseAmong(Host(), "fd00::/16"), "fd00::3");
}

// sglang#3226, nccl#377: the wrong interface, and no word of which there are.
TEST(InterfacesTest, ListsTheCandidatesWhenNothingFits) {
  for (const char* choice : {"eth9", "eth1", "eth2", "10.1.0.0/16", "192.168.0.0/16"}) {
    const Status status = ChooseAmong(Host(), choice).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << choice;
    for (const char* part : {"eth0 10.0.0.3/24 up", "br0 10.9.0.1/16 up, bridge",
                             "eth1 10.1.0.3/24 down", "eth2 up"}) {
      EXPECT_NE(Message(status).find(part), std::string::npos) << status;
    }
  }
}

TEST(InterfacesTest, RefusesWhatIsNoCidr) {
  for (const char* cidr : {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "ten/8"}) {
    EXPECT_EQ(InsideCidr(*ParseAddress("10.0.0.1", 0), cidr).status().code(),
              StatusCode::kInvalidArgument)
        << cidr;
  }
  EXPECT_TRUE(*InsideCidr(*ParseAddress("10.255.0.1", 0), "10.254.0.0/15"));
  EXPECT_FALSE(*InsideCidr(*ParseAddress("10.253.0.1", 0), "10.254.0.0/15"));
  EXPECT_TRUE(*InsideCidr(*ParseAddress("1.2.3.4", 0), "0.0.0.0/0"));
  EXPECT_FALSE(*InsideCidr(*ParseAddress("::1", 0), "0.0.0.0/0"));
}

TEST(InterfacesTest, ReachesALoopbackMasterOverTheLoopback) {
  EXPECT_EQ(*ChooseAddress("", "127.0.0.1", 29500), "127.0.0.1");
  EXPECT_EQ(*ChooseAddress("", "localhost", 29500), "127.0.0.1");
  const auto interfaces = ListInterfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status();
  EXPECT_TRUE(std::any_of(interfaces->begin(), interfaces->end(),
                          [](const Interface& one) { return one.loopback && one.up; }));
}

// In a network namespace of its own, in a child, with these interfaces: a bridge that comes first,
// two links, one of them down. Exit status 0: all as expected.
int InNamespace(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(77);
    const char* const commands =
        "ip link set lo up && ip link add cria_br type bridge && "
        "ip addr add 10.77.0.1/16 dev cria_br && ip link add cria_a type veth peer name cria_ap && "
        "ip link set cria_ap master cria_br && ip link set cria_ap up && ip link set cria_br up && "
        "ip addr add 10.78.0.2/24 dev cria_a && ip link set cria_a up && "
        "ip link add cria_b type veth peer name cria_bp && ip addr add 10.79.0.2/24 dev cria_b && "
        "ip route add 10.80.0.0/16 via 10.78.0.9";
    if (std::system(commands) != 0) _exit(77);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

TEST(InterfacesTest, FollowsTheRouteAmongRealInterfaces) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, for a network namespace";
  const int outcome = InNamespace([] {
    const auto interfaces = ListInterfaces();
    if (!interfaces.ok()) return 1;
    const auto find = [&](const char* name) -> const Interface* {
      for (const Interface& one : *interfaces) {
        if (one.name == name) return &one;
      }
      return nullptr;
    };
    const Interface* bridge = find("cria_br");
    const Interface* up = find("cria_a");
    const Interface* down = find("cria_b");
    if (bridge == nullptr || !bridge->bridge || !bridge->up) return 2;
    if (up == nullptr || up->bridge || !up->up) return 3;
    if (down == nullptr || down->up) return 4;
    if (ChooseAddress("", "10.80.1.1", 1).value_or("") != "10.78.0.2") return 5;
    if (ChooseAddress("cria_br", "10.80.1.1", 1).value_or("") != "10.77.0.1") return 6;
    if (ChooseAddress("10.76.0.0/14", "10.80.1.1", 1).value_or("") != "10.78.0.2") return 7;
    if (ChooseAddress("cria_b", "10.80.1.1", 1).ok()) return 8;
    const Status nowhere = ChooseAddress("", "203.0.113.9", 1).status();
    if (Message(nowhere).find("cria_b 10.79.0.2/24 down") == std::string::npos) return 9;
    return 0;
  });
  if (outcome == 77) GTEST_SKIP() << "needs network namespaces and ip(8)";
  EXPECT_EQ(outcome, 0);
}

}  // namespace
}  // namespace cria::comm

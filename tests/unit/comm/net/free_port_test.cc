#include "comm/net/free_port.h"

#include <gtest/gtest.h>

#include <set>

#include "comm/net/address.h"
#include "comm/net/socket.h"

namespace cria::comm {
namespace {

TEST(FreePortTest, GivesEachCallAPortThatCanBeListenedOn) {
  std::set<int> ports;
  for (int i = 0; i < 100; ++i) {
    const StatusOr<int> port = FreePort();
    ASSERT_TRUE(port.ok()) << port.status();
    EXPECT_TRUE(ports.insert(*port).second) << *port << " twice";
    EXPECT_LT(*port, 32'768) << "one that connections are given";
    const StatusOr<SocketAddress> address = ParseAddress("127.0.0.1", *port);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_TRUE(Listen(*address, 1).ok()) << *port;
  }
}

TEST(FreePortTest, PassesOverAPortThatIsTaken) {
  const int first = FreePort().value();
  const StatusOr<SocketAddress> next = ParseAddress("127.0.0.1", first + 1);
  const auto taken = Listen(next.value(), 1);
  if (!taken.ok()) GTEST_SKIP() << "another program has the next port";
  EXPECT_NE(FreePort().value(), first + 1);
}

}  // namespace
}  // namespace cria::comm

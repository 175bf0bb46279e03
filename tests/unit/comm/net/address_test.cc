#include "comm/net/address.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace cria::comm {
namespace {

TEST(AddressTest, ReadsAndPrintsNumericAddresses) {
  const auto v4 = ParseAddress("10.1.2.3", 29500);
  ASSERT_TRUE(v4.ok()) << v4.status();
  EXPECT_EQ(v4->family(), AF_INET);
  EXPECT_EQ(v4->ToString(), "10.1.2.3:29500");
  for (const char* text : {"2001:db8::1", "[2001:db8::1]"}) {
    const auto v6 = ParseAddress(text, 65535);
    ASSERT_TRUE(v6.ok()) << v6.status();
    EXPECT_EQ(v6->family(), AF_INET6);
    EXPECT_EQ(v6->port(), 65535);
    EXPECT_EQ(v6->ToString(), "[2001:db8::1]:65535");
    EXPECT_EQ(v6->host(), "2001:db8::1");
  }
}

TEST(AddressTest, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "localhost", "10.0.0.256", "10.0.0.1:80", "1::2::3", "[]"}) {
    EXPECT_EQ(ParseAddress(text, 1).status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ParseAddress("10.0.0.1", 65536).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseAddress("10.0.0.1", -1).status().code(), StatusCode::kInvalidArgument);
}

TEST(AddressTest, ResolvesNamesOfTheHostsFile) {
  const auto local = ResolveHost("localhost", 80, 5);
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(local->ToString(), "127.0.0.1:80");
  EXPECT_EQ(ResolveHost("10.0.0.9", 80, 0)->ToString(), "10.0.0.9:80");
  EXPECT_EQ(ResolveHost("", 80, 0).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cria::comm

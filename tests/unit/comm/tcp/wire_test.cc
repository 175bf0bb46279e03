#include "comm/tcp/wire.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"

namespace cria::comm::tcp {
namespace {

std::span<const std::byte> Body(const Bytes& frame) {
  return std::span(frame).subspan(sizeof(FrameFixed));
}

Hello SomeHello() {
  Hello hello{.name = "dp", .world_ranks = {0, 3, 5}};
  hello.fixed.purpose = Purpose::kUpward;
  hello.fixed.group_id = 77;
  hello.fixed.num_streams = 4;
  hello.fixed.stream = 3;
  return hello;
}

TEST(WireTest, HelloComesBackAsItWas) {
  Bytes bytes;
  AppendHello(SomeHello(), &bytes);
  HelloFixed fixed;
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  ASSERT_EQ(*HelloBytes(fixed), bytes.size());
  const auto hello = ReadHello(bytes);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->name, "dp");
  EXPECT_EQ(hello->world_ranks, (std::vector<int32_t>{0, 3, 5}));
  EXPECT_EQ(hello->fixed.group_id, 77u);
}

TEST(WireTest, RefusesHellosOutOfRange) {
  const HelloFixed good = SomeHello().fixed;
  EXPECT_TRUE(HelloBytes(good).ok());
  HelloFixed bad = good;
  bad.magic ^= 1;
  EXPECT_FALSE(HelloBytes(bad).ok());
  bad = good;
  bad.version = kProtocolVersion + 1;
  EXPECT_FALSE(HelloBytes(bad).ok());
  bad = good;
  bad.name_bytes = kNameBytesMax + 1;
  EXPECT_FALSE(HelloBytes(bad).ok());
  bad = good;
  bad.num_ranks = kRanksMax + 1;
  EXPECT_FALSE(HelloBytes(bad).ok());
  bad = good;
  bad.stream = bad.num_streams;
  EXPECT_FALSE(HelloBytes(bad).ok());
  bad = good;
  bad.num_streams = 0;
  EXPECT_FALSE(HelloBytes(bad).ok());
}

TEST(WireTest, PoisonComesBackAsItWasWithoutControlCharacters) {
  Poison poison{.operation = "all_reduce", .reason = "lost\nrank 3"};
  poison.fixed.status_code = 14;
  poison.fixed.kind = CommErrorKind::kPeerLost;
  poison.fixed.culprit_world = 3;
  Bytes bytes;
  AppendPoison(9, poison, &bytes);
  const auto read = ReadPoison(Body(bytes));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->reason, "lost rank 3");
  EXPECT_EQ(read->fixed.culprit_world, 3);
}

// Every read of damaged bytes ends in a value or an error, never outside its memory.
TEST(WireTest, SurvivesDamage) {
  const Rng rng(3, StreamOf("wire damage"));
  Bytes ping, pong, poison, hello;
  AppendPing(1, {}, &ping);
  AppendPong(1, {}, &pong);
  Poison some{.operation = "all_reduce", .reason = "why"};
  some.fixed.status_code = 4;
  AppendPoison(1, some, &poison);
  AppendHello(SomeHello(), &hello);
  int refused = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    for (Bytes bytes : {ping, pong, poison, hello}) {
      for (uint64_t flip = 0; flip < 3; ++flip) {
        bytes[rng.Below(100 * i + flip, bytes.size())] =
            static_cast<std::byte>(rng.U64(9 * i + flip));
      }
      bytes.resize(bytes.size() - rng.Below(i, 3));
      refused += ReadHello(bytes).ok() ? 0 : 1;
      if (bytes.size() < sizeof(FrameFixed)) continue;
      refused += ReadPing(Body(bytes)).ok() ? 0 : 1;
      refused += ReadPong(Body(bytes)).ok() ? 0 : 1;
      refused += ReadPoison(Body(bytes)).ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 4000);
}

}  // namespace
}  // namespace cria::comm::tcp

#include "comm/rendezvous/map_codec.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/hash.h"
#include "base/rng.h"
#include "comm/rendezvous/messages.h"

namespace cria::comm {
namespace {

// A map of one of several habits, from a seed.
RankMap RandomMap(uint64_t seed) {
  const Rng rng(seed, StreamOf("rank maps"));
  uint64_t draw = 0;
  const auto below = [&rng, &draw](uint64_t n) { return rng.Below(draw++, n); };
  const auto size = static_cast<int>(1 + below(below(4) == 0 ? 300 : 20));
  const auto per_host = static_cast<int>(1 + below(9));
  const uint64_t habit = below(4);
  RankMap map;
  for (int rank = 0; rank < size; ++rank) {
    const int host = habit == 1 ? rank % per_host : rank / per_host;
    RankInfo info = {.host = StrCat("node-", host, "/", HashHex(StrCat(host)).substr(0, below(20))),
                     .address = habit == 2 ? StrCat("fe80::", host) : StrCat("10.0.0.", host),
                     .port = habit == 3 ? 29500 + rank : static_cast<int>(below(65536)),
                     .shm_socket = {},
                     .pid = static_cast<int64_t>(below(1 << 22))};
    if (below(3) > 0) info.shm_socket = StrCat("cria-", info.pid, "-", HashHex(StrCat(rank)));
    if (below(50) == 0) info.pid = std::numeric_limits<int64_t>::max();
    if (below(50) == 0) info = {};
    if (below(50) == 0) info.host = std::string(kHostBytesMax, 'h');
    map.push_back(info);
  }
  return map;
}

void ExpectSame(const RankMap& a, const RankMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].host, b[i].host) << i;
    ASSERT_EQ(a[i].address, b[i].address) << i;
    ASSERT_EQ(a[i].port, b[i].port) << i;
    ASSERT_EQ(a[i].shm_socket, b[i].shm_socket) << i;
    ASSERT_EQ(a[i].pid, b[i].pid) << i;
  }
}

TEST(MapCodecTest, DecodesWhatItEncoded) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const RankMap map = RandomMap(seed);
    const std::string bytes = EncodeRankMap(map);
    const auto decoded = DecodeRankMap(bytes, static_cast<int>(map.size()));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectSame(map, *decoded);
    EXPECT_EQ(EncodeRankMap(*decoded), bytes);
  }
}

TEST(MapCodecTest, RanksInBlocksTakeAFewBytes) {
  RankMap map;
  for (int rank = 0; rank < 4096; ++rank) {
    map.push_back({.host = StrCat("gpu-node-", rank / 8),
                   .address = StrCat("10.0.", rank / 8 / 256, ".", rank / 8 % 256),
                   .port = 29600 + rank % 8,
                   .shm_socket = "",
                   .pid = 5000 + rank % 8});
  }
  EXPECT_LT(EncodeRankMap(map).size(), 4096U * 7);
}

TEST(MapCodecTest, RandomNamesTakeHalfAByteADigit) {
  RankMap map(4096);
  for (size_t rank = 0; rank < map.size(); ++rank) map[rank].pid = 5000 + static_cast<int>(rank);
  const size_t bytes_without = EncodeRankMap(map).size();
  for (RankInfo& info : map) {
    info.shm_socket =
        StrCat("cria-", info.pid, "-", HashHex(StrCat("name ", info.pid)).substr(0, 8));
  }
  EXPECT_LT(EncodeRankMap(map).size(), bytes_without + 4096 * 4 + 16);
}

TEST(MapCodecTest, EveryDamageIsNoticed) {
  const RankMap map = RandomMap(7);
  const std::string bytes = EncodeRankMap(map);
  const auto size = static_cast<int>(map.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    EXPECT_FALSE(DecodeRankMap(damaged, size).ok()) << "byte " << i;
    EXPECT_FALSE(DecodeRankMap(bytes.substr(0, i), size).ok()) << "cut at " << i;
  }
  EXPECT_FALSE(DecodeRankMap(bytes + "x", size).ok());
  EXPECT_FALSE(DecodeRankMap(bytes, size + 1).ok());
}

// A peer that makes the checksum right can still send nonsense: an error or a map, never a crash
// and never more ranks.
TEST(MapCodecTest, SurvivesDamageUnderARightChecksum) {
  const Rng rng(3, StreamOf("damage"));
  uint64_t draw = 0;
  int num_refused = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const RankMap map = RandomMap(seed % 50);
    std::string bytes = EncodeRankMap(map);
    bytes.resize(bytes.size() - 8);
    for (uint64_t i = 0; i <= rng.Below(draw++, 3); ++i) {
      const uint64_t place = rng.Below(draw++, bytes.size());
      bytes[place] = static_cast<char>(rng.Below(draw++, 256));
    }
    WireWriter(&bytes).Fixed64(Hash64(bytes));
    const auto decoded = DecodeRankMap(bytes, static_cast<int>(map.size()));
    num_refused += decoded.ok() ? 0 : 1;
    if (!decoded.ok()) continue;
    ASSERT_EQ(decoded->size(), map.size());
    for (const RankInfo& info : *decoded) {
      EXPECT_LE(info.host.size(), kHostBytesMax);
      EXPECT_GE(info.port, 0);
      EXPECT_LE(info.port, 65535);
    }
  }
  EXPECT_GT(num_refused, 500);
}

TEST(MapCodecTest, RefusesRecordsThatCannotTravel) {
  EXPECT_TRUE(CheckRankInfo({}).ok());
  EXPECT_FALSE(CheckRankInfo({.host = std::string(kHostBytesMax + 1, 'x')}).ok());
  EXPECT_FALSE(CheckRankInfo({.host = "", .address = "", .port = 65536}).ok());
  EXPECT_FALSE(CheckRankInfo({.host = "", .address = "", .port = -1}).ok());
  EXPECT_FALSE(
      CheckRankInfo({.host = "", .address = "", .port = 1, .shm_socket = "a\x01", .pid = 1}).ok());
}

TEST(MessagesTest, DecodeWhatTheyEncoded) {
  const Hello hello = {.world_size = 8192,
                       .rank = 77,
                       .instance = ~uint64_t{0},
                       .job = "slurm/1.2",
                       .address = "fe80::1%eth0",
                       .port = 65535,
                       .pid = 4,
                       .time_left_ms = 300000};
  const auto same_hello = DecodeHello(Encode(hello));
  ASSERT_TRUE(same_hello.ok()) << same_hello.status();
  EXPECT_EQ(same_hello->rank, 77);
  EXPECT_EQ(same_hello->instance, hello.instance);
  EXPECT_EQ(same_hello->job, hello.job);
  EXPECT_EQ(same_hello->address, hello.address);
  EXPECT_EQ(same_hello->time_left_ms, 300000);

  const Place place = {.session = 5,
                       .position = 9,
                       .degree = 3,
                       .parent_address = "::1",
                       .parent_port = 80,
                       .parent_rank = -1};
  const auto same_place = DecodePlace(Encode(place));
  ASSERT_TRUE(same_place.ok()) << same_place.status();
  EXPECT_EQ(same_place->position, 9);
  EXPECT_EQ(same_place->parent_rank, -1);

  const Status failure = DecodeFailure(EncodeFailure(DeadlineExceededError("rank 3 of 4")));
  EXPECT_EQ(failure, DeadlineExceededError("rank 3 of 4"));
  EXPECT_FALSE(DecodeFailure(EncodeFailure(OkStatus())).ok());
}

TEST(MessagesTest, NoBytesBreakTheDecoders) {
  const Rng rng(11, StreamOf("messages"));
  uint64_t draw = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    for (uint64_t size = rng.Below(draw++, 40); bytes.size() < size;) {
      bytes.push_back(static_cast<char>(rng.Below(draw++, 256)));
    }
    if (const auto hello = DecodeHello(bytes); hello.ok() && hello->version == kProtocolVersion) {
      EXPECT_GE(hello->world_size, 1);
    }
    if (const auto place = DecodePlace(bytes); place.ok()) {
      EXPECT_GE(place->degree, 2);
    }
    if (const auto records = DecodeRecords(bytes, 4); records.ok()) {
      EXPECT_LE(records->size(), 4U);
    }
    EXPECT_FALSE(DecodeFailure(bytes).ok());
  }
}

}  // namespace
}  // namespace cria::comm

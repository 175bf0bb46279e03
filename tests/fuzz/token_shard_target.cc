// llm.c's token shards (trainer/data/shard.h).

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/shard.h"

namespace cria::fuzz {
namespace {

using trainer::ShardReader;
using trainer::ShardWriter;
using trainer::TokenType;

Status Read(std::string_view input) {
  const std::string path = ScratchFile("x.bin", input);
  const StatusOr<ShardReader> shard = ShardReader::Open(path);
  if (!shard.ok()) return NamesPlace(shard.status(), path);
  CRIA_CHECK_EQ(static_cast<uint64_t>(ShardFileBytes(shard->num_tokens(), shard->type())),
                input.size());
  std::array<int32_t, 100> ids;
  for (int64_t i = 0; i < shard->num_tokens(); i += 100) {
    const auto n = static_cast<size_t>(std::min<int64_t>(100, shard->num_tokens() - i));
    shard->Read(i, std::span(ids).first(n));
  }
  return OkStatus();
}

std::string Written(TokenType type, const std::vector<int32_t>& ids) {
  ShardWriter writer(ScratchDir(), "seed", type, 1000);
  CRIA_CHECK(writer.Append(ids).ok());
  const auto shards = writer.Finish();
  CRIA_CHECK(shards.ok() && shards->size() == 1);
  return *ReadFile(JoinPath(ScratchDir(), (*shards)[0].file));
}

std::vector<std::string> Seeds() {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 200; ++i) ids.push_back(i * 300);
  return {Written(TokenType::kUint16, ids), Written(TokenType::kUint32, ids),
          Written(TokenType::kUint16, {7})};
}

std::vector<std::string> Regressions() {
  // A count that is negative, and one whose length in bytes wraps in 32 bits.
  std::string negative = Written(TokenType::kUint16, {1, 2});
  negative.replace(8, 4, "\xff\xff\xff\xff", 4);
  std::string wraps = Written(TokenType::kUint32, {1, 2});
  wraps.replace(8, 4, "\x02\x00\x00\x40", 4);
  return {negative, wraps};
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {
      .name = "token_shard", .read = Read, .seeds = Seeds, .regressions = Regressions};
  return target;
}

}  // namespace cria::fuzz

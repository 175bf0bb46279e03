#include "comm/rendezvous/messages.h"

#include <algorithm>
#include <limits>

#include "comm/rendezvous/rank_environment.h"
#include "comm/rendezvous/tree.h"
#include "comm/rendezvous/wire.h"

namespace cria::comm {
namespace {

constexpr size_t kJobBytesMax = 1024;
constexpr size_t kFailureBytesMax = 4096;
constexpr auto kInt64Max = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

Status Check(const WireReader& reader, std::string_view what, std::string_view payload) {
  if (reader.ok() && reader.rest().empty()) return OkStatus();
  return DataLossError("\"", what, "\" of ", payload.size(),
                       " bytes: cut short, too long or with a value out of range");
}

int ReadInt(WireReader* reader, int max) {
  return static_cast<int>(reader->VarintUpTo(static_cast<uint64_t>(max)));
}

}  // namespace

std::string Encode(const Hello& hello) {
  std::string out;
  WireWriter writer(&out);
  writer.Varint(hello.version);
  writer.Varint(static_cast<uint64_t>(hello.world_size));
  writer.Varint(static_cast<uint64_t>(hello.rank));
  writer.Fixed64(hello.instance);
  writer.Text(std::string_view(hello.job).substr(0, kJobBytesMax));
  writer.Text(hello.address);
  writer.Varint(static_cast<uint64_t>(hello.port));
  writer.Varint(static_cast<uint64_t>(hello.pid));
  writer.Varint(static_cast<uint64_t>(hello.time_left_ms));
  return out;
}

StatusOr<Hello> DecodeHello(std::string_view payload) {
  WireReader reader(payload);
  Hello hello;
  hello.version = reader.Varint();
  // Another version's message is another one: its number is all that can be told.
  if (reader.ok() && hello.version != kProtocolVersion) return hello;
  hello.world_size = ReadInt(&reader, kWorldSizeMax);
  hello.rank = ReadInt(&reader, kWorldSizeMax - 1);
  hello.instance = reader.Fixed64();
  hello.job = reader.Text(kJobBytesMax);
  hello.address = reader.Text(kAddressBytesMax);
  hello.port = ReadInt(&reader, 65535);
  hello.pid = static_cast<int64_t>(reader.VarintUpTo(kInt64Max));
  hello.time_left_ms = static_cast<int64_t>(reader.VarintUpTo(kInt64Max));
  CRIA_RETURN_IF_ERROR(Check(reader, "hello", payload));
  if (hello.world_size < 1) return DataLossError("\"hello\": world size 0");
  return hello;
}

std::string Encode(const Place& place) {
  std::string out;
  WireWriter writer(&out);
  writer.Fixed64(place.session);
  writer.Varint(static_cast<uint64_t>(place.position));
  writer.Varint(static_cast<uint64_t>(place.degree));
  writer.Text(place.parent_address);
  writer.Varint(static_cast<uint64_t>(place.parent_port));
  writer.Signed(place.parent_rank);
  return out;
}

StatusOr<Place> DecodePlace(std::string_view payload) {
  WireReader reader(payload);
  Place place;
  place.session = reader.Fixed64();
  place.position = ReadInt(&reader, kWorldSizeMax);
  place.degree = ReadInt(&reader, kTreeDegreeMax);
  place.parent_address = reader.Text(kAddressBytesMax);
  place.parent_port = ReadInt(&reader, 65535);
  const int64_t parent_rank = reader.Signed();
  CRIA_RETURN_IF_ERROR(Check(reader, "place", payload));
  if (place.position < 1 || place.degree < 2 || parent_rank < -1 || parent_rank >= kWorldSizeMax) {
    return DataLossError("\"place\": position ", place.position, ", degree ", place.degree,
                         ", parent ", parent_rank, ": out of range");
  }
  place.parent_rank = static_cast<int>(parent_rank);
  return place;
}

std::string Encode(const Join& join) {
  std::string out;
  WireWriter writer(&out);
  writer.Fixed64(join.session);
  writer.Varint(static_cast<uint64_t>(join.position));
  writer.Varint(static_cast<uint64_t>(join.rank));
  return out;
}

StatusOr<Join> DecodeJoin(std::string_view payload) {
  WireReader reader(payload);
  Join join;
  join.session = reader.Fixed64();
  join.position = ReadInt(&reader, kWorldSizeMax);
  join.rank = ReadInt(&reader, kWorldSizeMax - 1);
  CRIA_RETURN_IF_ERROR(Check(reader, "join", payload));
  return join;
}

StatusOr<std::vector<RankRecord>> DecodeRecords(std::string_view payload, int count_max) {
  WireReader reader(payload);
  const int count = ReadInt(&reader, count_max);
  std::vector<RankRecord> records;
  for (int i = 0; i < count && reader.ok(); ++i) records.push_back(ReadRecord(&reader));
  CRIA_RETURN_IF_ERROR(Check(reader, "records", payload));
  return records;
}

std::string EncodeFailure(const Status& status) {
  std::string out;
  WireWriter writer(&out);
  writer.Varint(static_cast<uint64_t>(status.raw_code()));
  writer.Text(Message(status).substr(0, kFailureBytesMax));
  return out;
}

Status DecodeFailure(std::string_view payload) {
  WireReader reader(payload);
  const int code = ReadInt(&reader, static_cast<int>(StatusCode::kUnauthenticated));
  const std::string text(reader.Text(kFailureBytesMax));
  CRIA_RETURN_IF_ERROR(Check(reader, "failure", payload));
  return Status(code == 0 ? StatusCode::kInternal : static_cast<StatusCode>(code), text);
}

}  // namespace cria::comm

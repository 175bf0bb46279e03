#include "comm/rendezvous/frame.h"

#include <algorithm>

#include "base/hash.h"
#include "comm/rendezvous/wire.h"

namespace cria::comm {
namespace {

constexpr uint32_t kMagic = 0x31565243;  // "CRV1"

}  // namespace

const char* Name(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHello:
      return "hello";
    case FrameKind::kPlace:
      return "place";
    case FrameKind::kJoin:
      return "join";
    case FrameKind::kRecords:
      return "records";
    case FrameKind::kMap:
      return "map";
    case FrameKind::kFailure:
      return "failure";
  }
  return "unknown";
}

SharedFrame MakeFrame(FrameKind kind, std::string_view payload) {
  auto bytes = std::make_shared<std::string>();
  bytes->reserve(kFrameHeaderBytes + payload.size());
  WireWriter writer(bytes.get());
  writer.Fixed32(kMagic);
  writer.Fixed32(static_cast<uint32_t>(kind));
  writer.Fixed32(static_cast<uint32_t>(payload.size()));
  writer.Fixed32(0);
  writer.Fixed64(Hash64(payload));
  bytes->append(payload);
  return bytes;
}

bool MayBecomeFrame(std::string_view bytes) {
  std::string magic;
  WireWriter(&magic).Fixed32(kMagic);
  const size_t size = std::min(bytes.size(), magic.size());
  return bytes.substr(0, size) == std::string_view(magic).substr(0, size);
}

StatusOr<FrameHeader> ParseFrameHeader(std::string_view bytes, uint32_t payload_bytes_max) {
  WireReader reader(bytes.substr(0, kFrameHeaderBytes));
  const uint32_t magic = reader.Fixed32();
  const uint32_t kind = reader.Fixed32();
  FrameHeader header;
  header.payload_bytes = reader.Fixed32();
  const uint32_t zero = reader.Fixed32();
  header.checksum = reader.Fixed64();
  if (magic != kMagic || zero != 0 || kind == 0 || kind > kFrameKindMax) {
    return DataLossError("got bytes that are no message of the rendezvous");
  }
  header.kind = static_cast<FrameKind>(kind);
  if (header.payload_bytes > payload_bytes_max) {
    return DataLossError("got a \"", Name(header.kind), "\" of ", header.payload_bytes,
                         " bytes; at most ", payload_bytes_max, " are expected here");
  }
  return header;
}

}  // namespace cria::comm

// The messages of the rendezvous on the wire: a header of 24 bytes, then the payload.
//
//   bytes  0  magic "CRV1"
//          4  kind (FrameKind)
//          8  payload bytes
//         12  zero
//         16  XXH3-64 of the payload
//
// Little-endian. What the payloads hold is in messages.h. Thread-safe: values.

#ifndef CRIA_COMM_RENDEZVOUS_FRAME_H_
#define CRIA_COMM_RENDEZVOUS_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cria::comm {

enum class FrameKind : uint32_t {
  kHello = 1,    // rank -> master: who I am
  kPlace = 2,    // master -> rank: your place in the tree, your parent's address
  kJoin = 3,     // rank -> parent: I am your child
  kRecords = 4,  // up the tree: records of ranks
  kMap = 5,      // down the tree: the encoded rank map
  kFailure = 6,  // up or down: the rendezvous failed, and why
};
inline constexpr uint32_t kFrameKindMax = 6;
// "hello", "place", ...
const char* Name(FrameKind kind);

inline constexpr size_t kFrameHeaderBytes = 24;

struct FrameHeader {
  FrameKind kind = FrameKind::kHello;
  uint32_t payload_bytes = 0;
  uint64_t checksum = 0;
};

// Header and payload in one piece, shared by all whom it is sent to.
using SharedFrame = std::shared_ptr<const std::string>;
SharedFrame MakeFrame(FrameKind kind, std::string_view payload);

// False when no frame of ours begins with these bytes, fewer than a header has.
bool MayBecomeFrame(std::string_view bytes);

// `bytes` holds kFrameHeaderBytes or more. DataLoss when they are no header of ours or announce
// more than `payload_bytes_max`.
StatusOr<FrameHeader> ParseFrameHeader(std::string_view bytes, uint32_t payload_bytes_max);

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_FRAME_H_

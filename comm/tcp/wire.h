// What travels on a connection, byte by byte (README.md has the tables): a hello and its reply when
// it opens, then messages of a collective or of point to point, or control frames.
//
//   AppendHello(hello, &bytes);                              // sender
//   CRIA_ASSIGN_OR_RETURN(HelloSizes sizes, CheckHello(fixed));  // receiver, after 64 bytes
//   CRIA_ASSIGN_OR_RETURN(Hello hello, ReadHello(all_bytes));
//
// Little-endian, as all machines we run on are. Whatever is read here may come from anybody who
// found the port: every length is checked against its limit before it is used.
// Thread-safe: values.

#ifndef CRIA_COMM_TCP_WIRE_H_
#define CRIA_COMM_TCP_WIRE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/error.h"
#include "comm/engine/transport.h"

namespace cria::comm::tcp {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kMagic = 0x31435243;  // "CRC1"
inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr size_t kNameBytesMax = 4096;
inline constexpr size_t kRanksMax = 1 << 20;
inline constexpr size_t kTextBytesMax = 4096;
inline constexpr int kStreamsMax = 64;

// What a connection is for. Point to point has a connection a direction, so that acknowledgements
// never queue behind data.
enum class Purpose : uint8_t { kCollective, kUpward, kDownward, kControl };
inline constexpr int kNumGroupPurposes = 3;

// The first bytes of whoever connects.
struct HelloFixed {
  uint32_t magic = kMagic;
  uint16_t version = kProtocolVersion;
  Purpose purpose = Purpose::kControl;
  uint8_t reserved = 0;
  uint64_t job = 0;       // digest of the rank map: another job's process is turned away
  uint64_t group_id = 0;  // 0 for control
  int32_t from_world = -1;
  int32_t to_world = -1;
  uint16_t stream = 0;
  uint16_t num_streams = 1;
  uint32_t name_bytes = 0;
  uint32_t num_ranks = 0;
  uint32_t reserved2[5] = {0, 0, 0, 0, 0};
};
static_assert(sizeof(HelloFixed) == 64);

struct Hello {
  HelloFixed fixed = {};
  std::string name = {};
  std::vector<int32_t> world_ranks = {};
};

// What the side that accepted sends before anything else.
enum class ReplyCode : uint32_t { kWelcome, kOtherGroup, kOtherJob, kOtherRank, kRefused };
struct ReplyFixed {
  uint32_t magic = kMagic;
  uint16_t version = kProtocolVersion;
  uint16_t reserved = 0;
  ReplyCode code = ReplyCode::kWelcome;
  uint32_t text_bytes = 0;
};
static_assert(sizeof(ReplyFixed) == 16);

// Before each message's payload. All of the signature, so that a mismatch is told with both sides'
// values, and no message is taken for another.
enum class MessageKind : uint32_t { kData = 1, kTransfer, kTransferAck, kConfirm };
struct MessageHeader {
  uint32_t magic = kMagic;
  MessageKind kind = MessageKind::kData;
  Signature signature = {};
  uint32_t round = 0;   // of the Run
  uint32_t index = 0;   // of the message among those of this Run from this sender to this receiver
  int64_t bytes = 0;    // of payload; of an acknowledgement: that the receiver expects
  uint64_t number = 0;  // point to point: of the transfer
};
static_assert(sizeof(MessageHeader) == 88);

enum class FrameType : uint16_t { kPing = 1, kPong, kPoison };
struct FrameFixed {
  uint32_t magic = kMagic;
  FrameType type = FrameType::kPing;
  uint16_t reserved = 0;
  uint64_t group_id = 0;
  uint32_t body_bytes = 0;
  uint32_t reserved2 = 0;
};
static_assert(sizeof(FrameFixed) == 24);

// "I wait for you in this operation."
struct Ping {
  Signature signature = {};
  uint32_t transfers = 0;  // 1: point to point, whose numbers are of the pair alone
  uint32_t reserved = 0;
};
static_assert(sizeof(Ping) == 64);

// What a rank knows of the rank that it, or somebody further on, waits for.
enum class PeerState : uint32_t {
  kSilent,    // has not answered for silent_ms
  kAbsent,    // alive, has not come to the operation; its last is `sequence`
  kBusy,      // alive, in the operation, waits for nobody
  kNoGroup,   // alive, has not created the group
  kClosed,    // alive, has closed the group
  kFinished,  // alive, has left the operation
};
struct Verdict {
  int32_t culprit_world = -1;  // -1: nobody known
  PeerState state = PeerState::kBusy;
  uint32_t silent_ms = 0;
  uint32_t hops = 0;      // ranks between the one that tells and the culprit
  uint64_t sequence = 0;  // the last operation that the culprit came to
};
static_assert(sizeof(Verdict) == 24);

// The answer: what this rank does in that group, and whom it blames if it waits too.
struct Pong {
  PeerState state = PeerState::kBusy;
  uint32_t waits = 0;        // 1: waits for a peer itself; then `verdict` says who is at the end
  uint32_t disagrees = 0;    // 1: `signature` is of the same number as the ping's, yet another
  uint32_t other_group = 0;  // 1: no such group here, but one of that name with other ranks
  Verdict verdict = {};
  Signature signature = {};  // the running or the last operation
};
static_assert(sizeof(Pong) == 96);

// "The group is broken, for this reason." Followed by operation and reason as text.
struct PoisonFixed {
  int32_t status_code = 0;
  CommErrorKind kind = CommErrorKind::kInternal;
  uint8_t has_comm_error = 0;
  uint8_t has_signature = 0;  // the sender is in an operation
  uint8_t reserved = 0;
  int32_t from_world = -1;
  int32_t culprit_world = -1;
  uint64_t sequence = 0;
  int64_t bytes = -1;
  int64_t culprit_bytes = -1;
  Signature signature = {};
  uint32_t operation_bytes = 0;
  uint32_t reason_bytes = 0;
};
static_assert(sizeof(PoisonFixed) == 104);
struct Poison {
  PoisonFixed fixed = {};
  std::string operation = {};
  std::string reason = {};
};

inline constexpr size_t kFrameBodyBytesMax = sizeof(PoisonFixed) + 2 * kTextBytesMax;

using Bytes = std::vector<std::byte>;

void AppendHello(const Hello& hello, Bytes* out);
void AppendReply(ReplyCode code, const std::string& text, Bytes* out);
void AppendPing(uint64_t group_id, const Ping& ping, Bytes* out);
void AppendPong(uint64_t group_id, const Pong& pong, Bytes* out);
void AppendPoison(uint64_t group_id, const Poison& poison, Bytes* out);

// Bytes of the whole hello, or InvalidArgument for what is none.
StatusOr<size_t> HelloBytes(const HelloFixed& fixed);
// `bytes` are HelloBytes() long.
StatusOr<Hello> ReadHello(std::span<const std::byte> bytes);

// InvalidArgument for what is no reply or no frame of ours, or too long.
Status CheckReply(const ReplyFixed& reply);
Status CheckMessage(const MessageHeader& header);
Status CheckFrame(const FrameFixed& frame);
StatusOr<Ping> ReadPing(std::span<const std::byte> body);
StatusOr<Pong> ReadPong(std::span<const std::byte> body);
StatusOr<Poison> ReadPoison(std::span<const std::byte> body);

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_WIRE_H_

#include "comm/tcp/wire.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace cria::comm::tcp {
namespace {

void AppendRaw(const void* data, size_t bytes, Bytes* out) {
  const auto* begin = static_cast<const std::byte*>(data);
  out->insert(out->end(), begin, begin + bytes);
}

template <typename T>
void AppendValue(const T& value, Bytes* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  AppendRaw(&value, sizeof(value), out);
}

// A string that may be anything, without control characters: it ends up in messages to people.
std::string Printable(std::span<const std::byte> bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

template <typename T>
StatusOr<T> ReadWhole(std::span<const std::byte> body, const char* what) {
  if (body.size() != sizeof(T)) {
    return InvalidArgumentError(what, " of ", body.size(), " bytes instead of ", sizeof(T));
  }
  T value;
  std::memcpy(&value, body.data(), sizeof(T));
  return value;
}

void AppendFrame(FrameType type, uint64_t group_id, size_t body_bytes, Bytes* out) {
  AppendValue(
      FrameFixed{
          .type = type, .group_id = group_id, .body_bytes = static_cast<uint32_t>(body_bytes)},
      out);
}

// The enumerators are indices of names: out of range they would read elsewhere.
Status CheckSignature(const Signature& signature) {
  if (static_cast<int>(signature.kind) < kNumOpKinds &&
      static_cast<int>(signature.dtype) < kNumDataTypes &&
      static_cast<int>(signature.reduce_op) < kNumReduceOps &&
      static_cast<int>(signature.algorithm) < kNumAlgorithms) {
    return OkStatus();
  }
  return InvalidArgumentError("a signature with values that do not exist");
}

}  // namespace

void AppendHello(const Hello& hello, Bytes* out) {
  HelloFixed fixed = hello.fixed;
  const size_t name_bytes = std::min(hello.name.size(), kNameBytesMax);
  fixed.name_bytes = static_cast<uint32_t>(name_bytes);
  fixed.num_ranks = static_cast<uint32_t>(hello.world_ranks.size());
  AppendValue(fixed, out);
  AppendRaw(hello.name.data(), name_bytes, out);
  AppendRaw(hello.world_ranks.data(), hello.world_ranks.size() * sizeof(int32_t), out);
}

void AppendReply(ReplyCode code, const std::string& text, Bytes* out) {
  const size_t text_bytes = std::min(text.size(), kTextBytesMax);
  AppendValue(ReplyFixed{.code = code, .text_bytes = static_cast<uint32_t>(text_bytes)}, out);
  AppendRaw(text.data(), text_bytes, out);
}

void AppendPing(uint64_t group_id, const Ping& ping, Bytes* out) {
  AppendFrame(FrameType::kPing, group_id, sizeof(ping), out);
  AppendValue(ping, out);
}

void AppendPong(uint64_t group_id, const Pong& pong, Bytes* out) {
  AppendFrame(FrameType::kPong, group_id, sizeof(pong), out);
  AppendValue(pong, out);
}

void AppendPoison(uint64_t group_id, const Poison& poison, Bytes* out) {
  PoisonFixed fixed = poison.fixed;
  const size_t operation_bytes = std::min(poison.operation.size(), kTextBytesMax);
  const size_t reason_bytes = std::min(poison.reason.size(), kTextBytesMax);
  fixed.operation_bytes = static_cast<uint32_t>(operation_bytes);
  fixed.reason_bytes = static_cast<uint32_t>(reason_bytes);
  AppendFrame(FrameType::kPoison, group_id, sizeof(fixed) + operation_bytes + reason_bytes, out);
  AppendValue(fixed, out);
  AppendRaw(poison.operation.data(), operation_bytes, out);
  AppendRaw(poison.reason.data(), reason_bytes, out);
}

StatusOr<size_t> HelloBytes(const HelloFixed& fixed) {
  if (fixed.magic != kMagic) return InvalidArgumentError("not a hello of ours");
  if (fixed.version != kProtocolVersion) {
    return InvalidArgumentError("protocol version ", fixed.version, " instead of ",
                                kProtocolVersion);
  }
  if (fixed.purpose > Purpose::kControl || fixed.name_bytes > kNameBytesMax ||
      fixed.num_ranks > kRanksMax || fixed.num_streams == 0 || fixed.num_streams > kStreamsMax ||
      fixed.stream >= fixed.num_streams) {
    return InvalidArgumentError("a hello with values out of range");
  }
  return sizeof(fixed) + fixed.name_bytes + fixed.num_ranks * sizeof(int32_t);
}

StatusOr<Hello> ReadHello(std::span<const std::byte> bytes) {
  Hello hello;
  if (bytes.size() < sizeof(hello.fixed)) return InvalidArgumentError("a hello that is too short");
  std::memcpy(&hello.fixed, bytes.data(), sizeof(hello.fixed));
  CRIA_ASSIGN_OR_RETURN(const size_t size, HelloBytes(hello.fixed));
  if (size != bytes.size()) return InvalidArgumentError("a hello of another length");
  bytes = bytes.subspan(sizeof(hello.fixed));
  hello.name = Printable(bytes.first(hello.fixed.name_bytes));
  bytes = bytes.subspan(hello.fixed.name_bytes);
  hello.world_ranks.resize(hello.fixed.num_ranks);
  if (!bytes.empty()) std::memcpy(hello.world_ranks.data(), bytes.data(), bytes.size());
  return hello;
}

Status CheckReply(const ReplyFixed& reply) {
  if (reply.magic != kMagic || reply.version != kProtocolVersion ||
      reply.code > ReplyCode::kRefused || reply.text_bytes > kTextBytesMax) {
    return InvalidArgumentError("the other end is no rank of this program and version");
  }
  return OkStatus();
}

Status CheckMessage(const MessageHeader& header) {
  if (header.magic != kMagic || header.bytes < 0 || header.kind < MessageKind::kData ||
      header.kind > MessageKind::kConfirm) {
    return InvalidArgumentError("not a message of ours");
  }
  return CheckSignature(header.signature);
}

Status CheckFrame(const FrameFixed& frame) {
  if (frame.magic != kMagic || frame.body_bytes > kFrameBodyBytesMax) {
    return InvalidArgumentError("not a control frame of ours");
  }
  return OkStatus();
}

StatusOr<Ping> ReadPing(std::span<const std::byte> body) {
  CRIA_ASSIGN_OR_RETURN(const Ping ping, ReadWhole<Ping>(body, "a ping"));
  CRIA_RETURN_IF_ERROR(CheckSignature(ping.signature));
  return ping;
}

StatusOr<Pong> ReadPong(std::span<const std::byte> body) {
  CRIA_ASSIGN_OR_RETURN(const Pong pong, ReadWhole<Pong>(body, "a pong"));
  CRIA_RETURN_IF_ERROR(CheckSignature(pong.signature));
  if (pong.state > PeerState::kFinished || pong.verdict.state > PeerState::kFinished) {
    return InvalidArgumentError("a pong with a state that does not exist");
  }
  return pong;
}

StatusOr<Poison> ReadPoison(std::span<const std::byte> body) {
  Poison poison;
  if (body.size() < sizeof(poison.fixed)) return InvalidArgumentError("a poison too short");
  std::memcpy(&poison.fixed, body.data(), sizeof(poison.fixed));
  const PoisonFixed& fixed = poison.fixed;
  CRIA_RETURN_IF_ERROR(CheckSignature(fixed.signature));
  if (fixed.operation_bytes > kTextBytesMax || fixed.reason_bytes > kTextBytesMax ||
      body.size() != sizeof(fixed) + fixed.operation_bytes + fixed.reason_bytes ||
      fixed.kind > CommErrorKind::kInternal || fixed.status_code <= 0 || fixed.status_code > 16) {
    return InvalidArgumentError("a poison with values out of range");
  }
  poison.operation = Printable(body.subspan(sizeof(fixed), fixed.operation_bytes));
  poison.reason = Printable(body.subspan(sizeof(fixed) + fixed.operation_bytes));
  return poison;
}

}  // namespace cria::comm::tcp

// Numbers and texts as bytes, for messages that cross machines: varints and little-endian words.
//
//   WireWriter writer(&bytes);  writer.Varint(rank);  writer.Text(host);
//   WireReader reader(bytes);   const uint64_t rank = reader.Varint();
//   if (!reader.ok()) return DataLossError(...);
//
// A reader never looks past its bytes: after the first thing that does not fit, it is not ok() and
// gives zeros and empty texts for ever, so that callers check once at the end, and before they use
// a value as a size. Thread-compatible.

#ifndef CRIA_COMM_RENDEZVOUS_WIRE_H_
#define CRIA_COMM_RENDEZVOUS_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cria::comm {

class WireWriter {
 public:
  explicit WireWriter(std::string* out) : out_(out) {}

  void Varint(uint64_t value) {
    while (value >= 0x80) {
      out_->push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_->push_back(static_cast<char>(value));
  }
  // Small negative numbers are short too.
  void Signed(int64_t value) {
    Varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void Fixed32(uint32_t value) { Fixed(value, 4); }
  void Fixed64(uint64_t value) { Fixed(value, 8); }
  void Text(std::string_view text) {
    Varint(text.size());
    out_->append(text);
  }

 private:
  void Fixed(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_->push_back(static_cast<char>(value >> (8 * i)));
  }

  std::string* out_;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  std::string_view rest() const { return rest_; }

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return Fail();
  }
  // A varint of at most `max`.
  uint64_t VarintUpTo(uint64_t max) {
    const uint64_t value = Varint();
    return value <= max ? value : Fail();
  }
  int64_t Signed() {
    const uint64_t value = Varint();
    return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  uint32_t Fixed32() { return static_cast<uint32_t>(Fixed(4)); }
  uint64_t Fixed64() { return Fixed(8); }
  std::string_view Bytes(uint64_t size) {
    if (size > rest_.size()) {
      Fail();
      return {};
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::string_view Text(uint64_t bytes_max) { return Bytes(VarintUpTo(bytes_max)); }

 private:
  uint64_t Fail() {
    ok_ = false;
    rest_ = {};
    return 0;
  }
  uint64_t Fixed(uint64_t size) {
    const std::string_view bytes = Bytes(size);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    }
    return value;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_WIRE_H_

// CRC-32C (Castagnoli), as TFRecord files need it. About 400 MB/s: for small records.
// Thread-safe.

#ifndef CRIA_TRAINER_METRICS_CRC32C_H_
#define CRIA_TRAINER_METRICS_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace cria::trainer {

// RFC 3720, appendix B.4: polynomial 0x1edc6f41, reflected; of "123456789" it is 0xe3069283.
uint32_t Crc32c(std::string_view bytes);

// What TFRecord stores instead, so that the checksum of bytes that hold checksums is no trivial
// one.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_METRICS_CRC32C_H_

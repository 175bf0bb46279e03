// The numbers of the GGUF format: types of values in its metadata, types of tensors.
//
//   const GgmlTypeInfo* info = FindGgmlType(8);   // "Q8_0", 32 elements in 34 bytes
//
// Thread-safe. Source: ggml's docs/gguf.md; sizes of blocks from the package gguf 0.19.

#ifndef CRIA_MODEL_IO_GGUF_TYPES_H_
#define CRIA_MODEL_IO_GGUF_TYPES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cria::model {

inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr size_t kGgufKeyBytesMax = 65535;
// The document says 64; ggml keeps names in 64 bytes with a zero at the end, and refuses 64.
inline constexpr size_t kGgufTensorNameBytesMax = 63;
inline constexpr uint32_t kGgufDimsMax = 4;

// The types of metadata values, by their numbers in the file.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr uint32_t kGgufValueTypesEnd = 13;

// "uint32", "string", "array": for messages.
const char* GgufValueTypeName(GgufValueType type);

// Bytes of a scalar; 0 for a string or an array.
size_t GgufScalarBytes(GgufValueType type);

// The types of tensors that we read and write, by their numbers in the file.
enum class GgmlType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBF16 = 30 };

// Any type that the format has. A row is a whole number of blocks.
struct GgmlTypeInfo {
  uint32_t id = 0;
  const char* name = "";
  uint32_t block_elements = 1;
  uint32_t block_bytes = 1;
};

// Null for a number that no type has.
const GgmlTypeInfo* FindGgmlType(uint32_t id);

// "F16", "Q8_0".
const char* GgmlTypeName(GgmlType type);

// Bytes of a row; `columns` is a multiple of the type's block.
int64_t GgmlRowBytes(GgmlType type, int64_t columns);

// The type of a command's option: f32, f16, bf16, q8_0. InvalidArgument lists them.
StatusOr<GgmlType> GgmlTypeFromOption(std::string_view name);

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_GGUF_TYPES_H_

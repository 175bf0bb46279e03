// GGUF files: llama.cpp's format of metadata and tensors, read without a copy.
//
//   CRIA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open("model.gguf"));
//   CRIA_ASSIGN_OR_RETURN(const int64_t layers, file.Integer("llama.block_count"));
//   const GgufTensor* norm = file.Find("output_norm.weight");
//   std::string_view bytes = file.Data(*norm);   // little-endian, row-major; memcpy it out
//
//   +------+---------+---------+------+-----------------+------------------+-----+----------+
//   | GGUF | version | tensors | keys | key, type, value | name, dims, type | pad | tensors  |
//   |      | u32     | u64     | u64  | ... (keys times) | offset ...       |     | each padded
//   +------+---------+---------+------+-----------------+------------------+-----+----------+
//
// Versions 2 and 3 are read, which differ in nothing that little-endian files show. Version 1 and
// big-endian files are refused by name. Every file is taken as hostile; refused are: a count or a
// length beyond the bytes that are left, a key that is empty, over 65,535 bytes, not printable
// ASCII or there twice, a value type over 12, a bool that is neither 0 nor 1, arrays nested deeper
// than kDepthMax, general.alignment that is no u32 or no multiple of 8, a tensor's name that is
// over 63 bytes or there twice, more than 4 dimensions, a type that ggml doesn't have, rows that
// are no whole number of blocks, offsets that are unaligned, beyond the file, or overlap.
// Not demanded: that keys be lower case (people's own keys are not), that tensors lie in order.
//
// Written by: gguf_writer.h. Read by: gguf_llama.h, trainer/models.
// Source: ggml's docs/gguf.md.

#ifndef CRIA_MODEL_IO_GGUF_H_
#define CRIA_MODEL_IO_GGUF_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "model/io/gguf_types.h"

namespace cria::model {

// A key of the file and where its value lies. Views into the mapped file.
struct GgufEntry {
  std::string_view key;
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element = GgufValueType::kU8;  // of an array
  uint64_t count = 0;                          // of an array
  // A scalar's bytes, a string's text, or an array's elements as they stand in the file.
  std::string_view payload;
};

struct GgufTensor {
  std::string_view name;
  const GgmlTypeInfo* type = nullptr;
  uint32_t num_dims = 0;
  std::array<int64_t, kGgufDimsMax> dims{};  // as in the file: the fastest first
  uint64_t offset = 0;                       // from the start of the data
  uint64_t bytes = 0;

  // The row-major shape: the slowest dimension first.
  std::vector<int64_t> shape() const;
  // "F16 [2, 3]", for messages.
  std::string Describe() const;
};

// A file mapped read-only. Views that it hands out live as long as it does (moving it keeps them).
// Thread-safe after Open. Cost of Open: the metadata is walked once, memory stays within a small
// multiple of it; the data is not touched. The file must not be truncated while mapped.
class GgufFile {
 public:
  static constexpr int kDepthMax = 4;

  // NotFound when there is no such file; DataLoss ("<path>: at byte 24: ...") when it is damaged;
  // Unimplemented for a big-endian file or a version that we don't read.
  static StatusOr<GgufFile> Open(const std::string& path);

  // The same over a mapping that the caller has. `path` is for messages.
  static StatusOr<GgufFile> FromMapped(MappedFile file, const std::string& path);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }

  // In the file's order.
  const std::vector<GgufEntry>& entries() const { return entries_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  bool Has(std::string_view key) const { return FindEntry(key) != nullptr; }
  // Null when there is none. O(log n).
  const GgufEntry* FindEntry(std::string_view key) const;
  const GgufTensor* Find(std::string_view name) const;

  // The values of keys. NotFound: "<path>: no key <key>"; InvalidArgument when it has another type:
  // "<path>: key <key> is string; expected an integer". Integer takes every integer type, Real
  // float32 and float64.
  StatusOr<int64_t> Integer(std::string_view key) const;
  StatusOr<double> Real(std::string_view key) const;
  StatusOr<bool> Bool(std::string_view key) const;
  // DataLoss when it is not UTF-8; so is a string of Strings.
  StatusOr<std::string_view> String(std::string_view key) const;
  StatusOr<std::vector<std::string_view>> Strings(std::string_view key) const;
  StatusOr<std::vector<int64_t>> Integers(std::string_view key) const;

  // The bytes of one of this file's tensors. They need not be aligned in memory.
  std::string_view Data(const GgufTensor& tensor) const;

 private:
  GgufFile() = default;
  Status Parse();
  Status CheckEntries();
  Status CheckTensors();
  StatusOr<const GgufEntry*> Get(std::string_view key) const;
  Status WrongType(const GgufEntry& entry, const char* expected) const;

  std::string path_;
  MappedFile file_;
  uint32_t version_ = 0;
  uint64_t alignment_ = kGgufDefaultAlignment;
  uint64_t data_start_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> entries_by_key_;  // indices, sorted
  std::vector<uint32_t> tensors_by_name_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_GGUF_H_

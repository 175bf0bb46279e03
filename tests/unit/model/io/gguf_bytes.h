// GGUF files put together byte by byte, right or wrong: for the tests of the reader.
//
//   const std::string bytes = GgufHeader(3, 0, 1) + GgufKey("a.b", 4) + Le<uint32_t>(7);
//   const StatusOr<GgufFile> file = GgufOf(bytes);
//
// Single-threaded (one scratch file a process).

#ifndef CRIA_TESTS_UNIT_MODEL_IO_GGUF_BYTES_H_
#define CRIA_TESTS_UNIT_MODEL_IO_GGUF_BYTES_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "model/io/gguf.h"

namespace cria::model {

template <typename T>
std::string Le(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

inline std::string GgufText(std::string_view text) {
  return Le<uint64_t>(text.size()) + std::string(text);
}

inline std::string GgufHeader(uint32_t version, uint64_t tensors, uint64_t keys) {
  return "GGUF" + Le(version) + Le(tensors) + Le(keys);
}

inline std::string GgufKey(std::string_view key, uint32_t type) { return GgufText(key) + Le(type); }

// `dims` in the file's order.
inline std::string GgufTensorInfo(std::string_view name, const std::vector<uint64_t>& dims,
                                  uint32_t type, uint64_t offset) {
  std::string out = GgufText(name) + Le(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) out += Le(dim);
  return out + Le(type) + Le(offset);
}

inline std::string PaddedTo(std::string bytes, size_t alignment) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  return bytes;
}

inline std::string GgufTempPath(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return JoinPath(folder != nullptr ? folder : "/tmp", name);
}

// The bytes as a file, opened. Not synced: hundreds of them are made.
inline StatusOr<GgufFile> GgufOf(const std::string& bytes) {
  const std::string path = GgufTempPath("scratch.gguf");
  (void)RemoveAll(path);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return InternalError("cannot write ", path);
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
  return GgufFile::Open(path);
}

}  // namespace cria::model

#endif  // CRIA_TESTS_UNIT_MODEL_IO_GGUF_BYTES_H_

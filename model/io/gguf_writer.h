// GgufWriter: a GGUF file (version 3), written as it streams, crash-safely.
//
//   CRIA_ASSIGN_OR_RETURN(auto writer, GgufWriter::Create("model.gguf"));
//   writer->AddString("general.architecture", "llama");
//   writer->AddU32("llama.block_count", 2);
//   writer->AddTensor("output_norm.weight", {288}, GgmlType::kF32);    // all of them, in order
//   CRIA_RETURN_IF_ERROR(writer->BeginData());
//   CRIA_RETURN_IF_ERROR(writer->Append(bytes));    // tensor after tensor, in any pieces
//   CRIA_RETURN_IF_ERROR(writer->Commit());         // now, and only now, model.gguf exists
//
// Called by gguf_model (export). Same calls, same bytes: nothing but what was added is written;
// alignment is the default, 32. Tensor data is not held: only the metadata is, until BeginData.
// Single-threaded. Errors: InvalidArgument for a key that is not lower_snake.segments or there
// twice, a tensor's name that is too long or there twice, dimensions that the format can't hold,
// data that is not as long as the tensors; they stick, as the file system's do (AtomicFile), and
// come back from BeginData, Append and Commit.

#ifndef CRIA_MODEL_IO_GGUF_WRITER_H_
#define CRIA_MODEL_IO_GGUF_WRITER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "model/io/gguf_types.h"

namespace cria::model {

class GgufWriter {
 public:
  static StatusOr<std::unique_ptr<GgufWriter>> Create(const std::string& path);

  void AddU32(std::string_view key, uint32_t value);
  void AddF32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  void AddI32s(std::string_view key, std::span<const int32_t> values);

  // `shape` is row-major: rows, then columns.
  void AddTensor(std::string_view name, const std::vector<int64_t>& shape, GgmlType type);

  // Writes the metadata. Nothing can be added afterwards.
  Status BeginData();

  // The next bytes of the tensors' data; pads where a tensor ends.
  Status Append(std::string_view bytes);

  // Publishes the file. At most once.
  Status Commit();

 private:
  struct Tensor {
    std::string name;
    uint64_t bytes = 0;
  };
  explicit GgufWriter(std::unique_ptr<AtomicFile> file) : file_(std::move(file)) {}
  void Fail(Status error);
  bool BeginEntry(std::string_view key, GgufValueType type);
  void BeginArray(GgufValueType element, size_t count);

  const std::unique_ptr<AtomicFile> file_;
  Status error_;
  bool in_data_ = false;
  std::string entries_;
  std::string infos_;
  uint64_t num_entries_ = 0;
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> names_;
  std::vector<Tensor> tensors_;
  uint64_t data_bytes_ = 0;  // of the tensors so far, padded
  size_t current_ = 0;       // tensor being appended to
  uint64_t written_ = 0;     // of it
};

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_GGUF_WRITER_H_

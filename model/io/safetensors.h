// Safetensors files: named tensors of Hugging Face's format, read without a copy, written
// crash-safely. Called by the checkpoint code, by import and export of models, and by `check
// golden`.
//
//   CRIA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open("model.safetensors"));
//   const TensorInfo* info = file.Find("model.norm.weight");
//   if (info == nullptr) return NotFoundError(file.path(), ": no model.norm.weight");
//   std::string_view bytes = file.Data(*info);  // little-endian, row-major; memcpy it out
//
//   CRIA_ASSIGN_OR_RETURN(const WrittenFile written,
//                         WriteSafetensors(path, {{"w", StDtype::kF32, {2, 3}, bytes_of_w}}, {}));
//
//   +--------+-----------------------------+--------------------------------+
//   | u64 N  | N bytes of JSON, then spaces | the tensors, no holes         |
//   +--------+-----------------------------+--------------------------------+
//   {"__metadata__": {"k": "v"}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
//
// Every file is taken as hostile. What is refused, by the reference's error names, which begin our
// messages: HeaderTooSmall, HeaderTooLarge (N over 100,000,000), InvalidHeaderLength, InvalidHeader
// (not UTF-8), InvalidHeaderStart, InvalidHeaderDeserialization (JSON, types, a duplicate key),
// InvalidOffset (hole, overlap, end before begin), ValidationOverflow, MisalignedSlice,
// TensorInvalidInfo (length does not fit dtype and shape), MetadataIncompleteBuffer (bytes after
// the last tensor, or missing). Values are not checked: NaN is legal.
//
// Stricter than the reference's code (0.8) in three places: the header must begin with '{', as its
// README demands; at most 64 dimensions; no dimension over 2^63 - 1.
// Source: safetensors/src/tensor.rs and the README's section "Format" of that repository.

#ifndef CRIA_MODEL_IO_SAFETENSORS_H_
#define CRIA_MODEL_IO_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace cria::model {

// The order is the format's: writers put the tensors with the last dtypes first, so that each
// begins at a multiple of its element size.
enum class StDtype {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// "F32", "BF16", "F8_E4M3", ...: the name in the file.
const char* StDtypeName(StDtype dtype);

// Bits of one element: 4, 6, 8, 16, 32 or 64.
int StDtypeBits(StDtype dtype);

// The dtype of that name; InvalidArgument when there is none.
StatusOr<StDtype> StDtypeFromName(std::string_view name);

// "F32 [2, 3]", for messages.
std::string DescribeTensor(StDtype dtype, const std::vector<int64_t>& shape);

struct TensorInfo {
  std::string name;
  StDtype dtype = StDtype::kF32;
  std::vector<int64_t> shape;  // empty: a scalar; a dimension may be 0
  uint64_t begin = 0;          // bytes from the start of the data, [begin, end)
  uint64_t end = 0;
};

// A file mapped read-only. The views that it hands out live as long as it does (moving it keeps
// them). Thread-safe after Open. Cost of Open: the header is parsed (memory a small multiple of
// it), the data is not touched. The file must not be truncated by others while mapped; replacing it
// by a rename is fine.
class SafetensorsFile {
 public:
  // NotFound when there is no such file, DataLoss ("<path>: InvalidOffset: ...") when it is
  // damaged.
  static StatusOr<SafetensorsFile> Open(const std::string& path);

  // The same over a mapping that the caller has (it may have checked a hash of these very bytes).
  // `path` is for messages.
  static StatusOr<SafetensorsFile> FromMapped(MappedFile file, const std::string& path);

  const std::string& path() const { return path_; }

  // In the order of their data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // Null when there is no such tensor. O(log n).
  const TensorInfo* Find(std::string_view name) const;

  // The bytes of one of this file's tensors. They need not be aligned to the element.
  std::string_view Data(const TensorInfo& tensor) const;

  // As Find and Data, with the dtype and shape that the caller counts on: NotFound, or
  // InvalidArgument "<path>: tensor <name> is F32 [2, 3]; expected F32 [3, 2]".
  StatusOr<std::string_view> DataOf(std::string_view name, StDtype dtype,
                                    const std::vector<int64_t>& shape) const;

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Where the data begins in the file: TensorInfo::begin counts from here.
  uint64_t data_start() const { return data_start_; }

 private:
  SafetensorsFile() = default;

  std::string path_;
  MappedFile file_;
  uint64_t data_start_ = 0;
  std::vector<TensorInfo> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_, sorted by name
  std::map<std::string, std::string> metadata_;
};

// `data` stays the caller's and must live until the write returns.
struct TensorToWrite {
  std::string name;
  StDtype dtype = StDtype::kF32;
  std::vector<int64_t> shape;
  std::string_view data;
};

// A tensor whose bytes are made while the file is written: weights that are converted on the way.
struct TensorToStream {
  using Append = std::function<Status(std::string_view)>;
  std::string name;
  StDtype dtype = StDtype::kF32;
  std::vector<int64_t> shape;
  // Hands exactly the tensor's bytes to `append`, in pieces; called once, in the file's order.
  std::function<Status(const Append& append)> write;
};

// A file before its data is there, for several writers that fill it in place.
struct SafetensorsHeader {
  std::string bytes;        // the file's first bytes: all but the data
  uint64_t file_bytes = 0;  // of the whole file
};

struct WrittenFile {
  uint64_t bytes = 0;
  std::string hash;  // XXH3-128 of the whole file, as HashFileHex (base/hash.h) gives it
};

// Writes the file: to a temporary name, synced, renamed. After an error `path` is what it was
// before. Byte for byte what the reference writes: sorted by dtype (last of the enum first), then
// by name. InvalidArgument: a name twice, "__metadata__" as a name, a name or metadata that is not
// UTF-8, data whose length does not fit, a header over the limit. Otherwise the file system's
// error. Cost: the data is written and hashed in one pass, without a copy.
StatusOr<WrittenFile> WriteSafetensors(const std::string& path,
                                       const std::vector<TensorToWrite>& tensors,
                                       const std::map<std::string, std::string>& metadata);

// The same for tensors that are made on the way; no tensor is held whole. Also the errors of
// `write`, and InvalidArgument when it gives more or fewer bytes than dtype and shape need.
StatusOr<WrittenFile> StreamSafetensors(const std::string& path,
                                        const std::vector<TensorToStream>& tensors,
                                        const std::map<std::string, std::string>& metadata);

// What StreamSafetensors would write before the data of these tensors (their `write` is not used).
// Errors as there.
StatusOr<SafetensorsHeader> PlanSafetensors(const std::vector<TensorToStream>& tensors,
                                            const std::map<std::string, std::string>& metadata);

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_SAFETENSORS_H_

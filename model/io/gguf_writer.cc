#include "model/io/gguf_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "model/io/gguf_text.h"

namespace cria::model {
namespace {

// Values go out as they lie in memory: little-endian machines only.
template <typename T>
void Put(std::string* out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

void PutString(std::string* out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out->append(text);
}

// Segments of [a-z0-9_] with dots between.
bool IsWellFormedKey(std::string_view key) {
  if (key.size() > kGgufKeyBytesMax) return false;
  bool in_segment = false;
  for (const char c : key) {
    if (c == '.') {
      if (!in_segment) return false;
      in_segment = false;
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_') {
      in_segment = true;
    } else {
      return false;
    }
  }
  return in_segment;
}

uint64_t PaddingAfter(uint64_t bytes) {
  return (kGgufDefaultAlignment - bytes % kGgufDefaultAlignment) % kGgufDefaultAlignment;
}

}  // namespace

StatusOr<std::unique_ptr<GgufWriter>> GgufWriter::Create(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  return std::unique_ptr<GgufWriter>(new GgufWriter(std::move(file)));
}

void GgufWriter::Fail(Status error) {
  if (error_.ok()) error_ = std::move(error);
}

bool GgufWriter::BeginEntry(std::string_view key, GgufValueType type) {
  CRIA_CHECK(!in_data_, "key after BeginData: ", key);
  if (!IsWellFormedKey(key)) {
    Fail(InvalidArgumentError("write GGUF: key ", GgufQuoted(key),
                              " is not of lower_snake segments with dots between"));
    return false;
  }
  if (!keys_.insert(std::string(key)).second) {
    Fail(InvalidArgumentError("write GGUF: key ", key, " is there twice"));
    return false;
  }
  ++num_entries_;
  PutString(&entries_, key);
  Put(&entries_, static_cast<uint32_t>(type));
  return true;
}

void GgufWriter::BeginArray(GgufValueType element, size_t count) {
  Put(&entries_, static_cast<uint32_t>(element));
  Put<uint64_t>(&entries_, count);
}

void GgufWriter::AddU32(std::string_view key, uint32_t value) {
  if (BeginEntry(key, GgufValueType::kU32)) Put(&entries_, value);
}

void GgufWriter::AddF32(std::string_view key, float value) {
  if (BeginEntry(key, GgufValueType::kF32)) Put(&entries_, value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  if (BeginEntry(key, GgufValueType::kBool)) Put<uint8_t>(&entries_, value ? 1 : 0);
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  if (!IsUtf8(value)) Fail(InvalidArgumentError("write GGUF: key ", key, ": not UTF-8"));
  if (BeginEntry(key, GgufValueType::kString)) PutString(&entries_, value);
}

void GgufWriter::AddStrings(std::string_view key, std::span<const std::string> values) {
  if (!BeginEntry(key, GgufValueType::kArray)) return;
  BeginArray(GgufValueType::kString, values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!IsUtf8(values[i])) {
      Fail(InvalidArgumentError("write GGUF: key ", key, "[", i, "]: not UTF-8"));
    }
    PutString(&entries_, values[i]);
  }
}

void GgufWriter::AddI32s(std::string_view key, std::span<const int32_t> values) {
  if (!BeginEntry(key, GgufValueType::kArray)) return;
  BeginArray(GgufValueType::kI32, values.size());
  for (const int32_t value : values) Put(&entries_, value);
}

void GgufWriter::AddTensor(std::string_view name, const std::vector<int64_t>& shape,
                           GgmlType type) {
  CRIA_CHECK(!in_data_, "tensor after BeginData: ", name);
  if (name.size() > kGgufTensorNameBytesMax || !IsUtf8(name)) {
    return Fail(InvalidArgumentError("write GGUF: tensor ", GgufQuoted(name), ": its name has ",
                                     name.size(), " bytes, at most ", kGgufTensorNameBytesMax,
                                     " of UTF-8 fit"));
  }
  if (!names_.insert(std::string(name)).second) {
    return Fail(InvalidArgumentError("write GGUF: tensor ", name, " is there twice"));
  }
  if (shape.empty() || shape.size() > kGgufDimsMax) {
    return Fail(InvalidArgumentError("write GGUF: tensor ", name, " has ", shape.size(),
                                     " dimensions, expected 1 to ", kGgufDimsMax));
  }
  const GgmlTypeInfo& info = *FindGgmlType(static_cast<uint32_t>(type));
  if (*std::min_element(shape.begin(), shape.end()) < 0 || shape.back() % info.block_elements) {
    return Fail(InvalidArgumentError("write GGUF: tensor ", name, ": rows of ", shape.back(),
                                     " elements are no multiple of ", info.name, "'s block of ",
                                     info.block_elements));
  }
  auto bytes = static_cast<uint64_t>(GgmlRowBytes(type, shape.back()));
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(shape[i]), &bytes)) {
      return Fail(InvalidArgumentError("write GGUF: tensor ", name, " has over 2^64 bytes"));
    }
  }
  PutString(&infos_, name);
  Put(&infos_, static_cast<uint32_t>(shape.size()));
  for (size_t i = shape.size(); i > 0; --i) Put<uint64_t>(&infos_, shape[i - 1]);
  Put(&infos_, static_cast<uint32_t>(type));
  Put<uint64_t>(&infos_, data_bytes_);
  tensors_.push_back({std::string(name), bytes});
  data_bytes_ += bytes + PaddingAfter(bytes);
}

Status GgufWriter::BeginData() {
  CRIA_CHECK(!in_data_, "BeginData twice");
  in_data_ = true;
  CRIA_RETURN_IF_ERROR(error_);
  std::string header = "GGUF";
  Put<uint32_t>(&header, 3);
  Put<uint64_t>(&header, tensors_.size());
  Put<uint64_t>(&header, num_entries_);
  header += entries_;
  header += infos_;
  header.append(PaddingAfter(header.size()), '\0');
  return file_->Append(header);
}

Status GgufWriter::Append(std::string_view bytes) {
  CRIA_CHECK(in_data_, "Append before BeginData");
  CRIA_RETURN_IF_ERROR(error_);
  while (!bytes.empty()) {
    if (current_ == tensors_.size()) {
      Fail(InvalidArgumentError("write GGUF: ", bytes.size(), " bytes after the last tensor"));
      return error_;
    }
    const Tensor& tensor = tensors_[current_];
    const uint64_t n = std::min<uint64_t>(bytes.size(), tensor.bytes - written_);
    CRIA_RETURN_IF_ERROR(file_->Append(bytes.substr(0, n)));
    bytes.remove_prefix(n);
    written_ += n;
    if (written_ == tensor.bytes) {
      CRIA_RETURN_IF_ERROR(file_->Append(std::string(PaddingAfter(tensor.bytes), '\0')));
      ++current_;
      written_ = 0;
    }
  }
  return OkStatus();
}

Status GgufWriter::Commit() {
  CRIA_CHECK(in_data_, "Commit before BeginData");
  while (current_ < tensors_.size() && tensors_[current_].bytes == 0) ++current_;
  if (error_.ok() && current_ < tensors_.size()) {
    Fail(InvalidArgumentError("write GGUF: tensor ", tensors_[current_].name, " got ", written_,
                              " of ", tensors_[current_].bytes, " bytes"));
  }
  CRIA_RETURN_IF_ERROR(error_);
  return file_->Commit();
}

}  // namespace cria::model

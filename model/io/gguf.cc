#include "model/io/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "model/io/gguf_text.h"

namespace cria::model {
namespace {

// The least that one entry or tensor takes in a file: what a count is checked against before
// anything is reserved for it.
constexpr uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;   // length, key, type, value
constexpr uint64_t kTensorBytesMin = 8 + 4 + 4 + 8;  // length, dims, type, offset
constexpr uint64_t kStringBytesMin = 8;
constexpr uint64_t kArrayBytesMin = 4 + 8;

template <typename T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Walks the bytes; every error says where.
class Cursor {
 public:
  Cursor(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  size_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  template <typename... Parts>
  Status Error(const Parts&... parts) const {
    return DataLossError(path_, ": at byte ", at_, ": ", parts...);
  }

  StatusOr<std::string_view> Bytes(uint64_t n, const char* what) {
    if (n > left()) return Error(what, " needs ", n, " bytes, the file has ", left(), " more");
    const std::string_view out = bytes_.substr(at_, n);
    at_ += n;
    return out;
  }

  template <typename T>
  StatusOr<T> Scalar(const char* what) {
    CRIA_ASSIGN_OR_RETURN(const std::string_view bytes, Bytes(sizeof(T), what));
    return Load<T>(bytes.data());
  }

  StatusOr<std::string_view> String(const char* what) {
    CRIA_ASSIGN_OR_RETURN(const uint64_t n, Scalar<uint64_t>(what));
    return Bytes(n, what);
  }

  // A count of things that take at least `bytes_min` each.
  StatusOr<uint64_t> Count(const char* what, uint64_t bytes_min) {
    CRIA_ASSIGN_OR_RETURN(const uint64_t n, Scalar<uint64_t>(what));
    CRIA_RETURN_IF_ERROR(CheckCount(n, what, bytes_min));
    return n;
  }
  Status CheckCount(uint64_t n, const char* what, uint64_t bytes_min) const {
    if (n <= left() / bytes_min) return OkStatus();
    return Error(n, " ", what, " can't be in the ", left(), " bytes left");
  }

 private:
  const std::string_view bytes_;
  const std::string& path_;
  size_t at_ = 0;
};

StatusOr<GgufValueType> ReadValueType(Cursor* cursor, std::string_view key) {
  CRIA_ASSIGN_OR_RETURN(const uint32_t number, cursor->Scalar<uint32_t>("a value type"));
  if (number >= kGgufValueTypesEnd) {
    return cursor->Error("key ", GgufQuoted(key), ": value type ", number, " is none of 0 to 12");
  }
  return static_cast<GgufValueType>(number);
}

Status CheckBools(const Cursor& cursor, std::string_view key, std::string_view bytes) {
  for (const char c : bytes) {
    const auto value = static_cast<uint8_t>(c);
    if (value > 1) {
      return cursor.Error("key ", GgufQuoted(key), ": a bool is ", static_cast<int>(value),
                          ", expected 0 or 1");
    }
  }
  return OkStatus();
}

// Walks over the elements of an array. Bounded: each level checks its count against the bytes left.
Status SkipElements(Cursor* cursor, std::string_view key, GgufValueType element, uint64_t count,
                    int depth) {
  if (const size_t size = GgufScalarBytes(element); size > 0) {
    CRIA_RETURN_IF_ERROR(cursor->CheckCount(count, "array elements", size));
    CRIA_ASSIGN_OR_RETURN(const std::string_view bytes, cursor->Bytes(count * size, "an array"));
    return element == GgufValueType::kBool ? CheckBools(*cursor, key, bytes) : OkStatus();
  }
  if (element == GgufValueType::kString) {
    CRIA_RETURN_IF_ERROR(cursor->CheckCount(count, "strings", kStringBytesMin));
    for (uint64_t i = 0; i < count; ++i) {
      CRIA_RETURN_IF_ERROR(cursor->String("a string of an array").status());
    }
    return OkStatus();
  }
  CRIA_RETURN_IF_ERROR(cursor->CheckCount(count, "arrays", kArrayBytesMin));
  if (depth >= GgufFile::kDepthMax) {
    return cursor->Error("key ", GgufQuoted(key), ": arrays nested deeper than ",
                         GgufFile::kDepthMax);
  }
  for (uint64_t i = 0; i < count; ++i) {
    CRIA_ASSIGN_OR_RETURN(const GgufValueType inner, ReadValueType(cursor, key));
    CRIA_ASSIGN_OR_RETURN(const uint64_t inner_count,
                          cursor->Scalar<uint64_t>("an array's length"));
    CRIA_RETURN_IF_ERROR(SkipElements(cursor, key, inner, inner_count, depth + 1));
  }
  return OkStatus();
}

Status CheckKey(const Cursor& cursor, std::string_view key) {
  if (key.empty()) return cursor.Error("an empty key");
  if (key.size() > kGgufKeyBytesMax) {
    return cursor.Error("a key of ", key.size(), " bytes, at most ", kGgufKeyBytesMax);
  }
  for (const char c : key) {
    if (c <= ' ' || c > '~') {
      return cursor.Error("key ", GgufQuoted(key), " has a character that is not printable ASCII");
    }
  }
  return OkStatus();
}

StatusOr<GgufEntry> ReadEntry(Cursor* cursor, std::string_view bytes) {
  GgufEntry entry;
  CRIA_ASSIGN_OR_RETURN(entry.key, cursor->String("a key"));
  CRIA_RETURN_IF_ERROR(CheckKey(*cursor, entry.key));
  CRIA_ASSIGN_OR_RETURN(entry.type, ReadValueType(cursor, entry.key));
  if (entry.type == GgufValueType::kString) {
    CRIA_ASSIGN_OR_RETURN(entry.payload, cursor->String("a string value"));
    return entry;
  }
  if (entry.type != GgufValueType::kArray) {
    CRIA_ASSIGN_OR_RETURN(entry.payload, cursor->Bytes(GgufScalarBytes(entry.type), "a value"));
    if (entry.type == GgufValueType::kBool) {
      CRIA_RETURN_IF_ERROR(CheckBools(*cursor, entry.key, entry.payload));
    }
    return entry;
  }
  CRIA_ASSIGN_OR_RETURN(entry.element, ReadValueType(cursor, entry.key));
  CRIA_ASSIGN_OR_RETURN(entry.count, cursor->Scalar<uint64_t>("an array's length"));
  const size_t begin = cursor->at();
  CRIA_RETURN_IF_ERROR(SkipElements(cursor, entry.key, entry.element, entry.count, 1));
  entry.payload = bytes.substr(begin, cursor->at() - begin);
  return entry;
}

// Bytes of the tensor's data, from its dims and type.
Status MeasureTensor(const Cursor& cursor, GgufTensor* tensor) {
  const GgmlTypeInfo& type = *tensor->type;
  const auto row = static_cast<uint64_t>(tensor->num_dims > 0 ? tensor->dims[0] : 1);
  if (row % type.block_elements != 0) {
    return cursor.Error("tensor ", GgufQuoted(tensor->name), ": rows of ", row,
                        " elements are no multiple of ", type.name, "'s block of ",
                        type.block_elements);
  }
  uint64_t bytes = row / type.block_elements;
  bool overflow = __builtin_mul_overflow(bytes, uint64_t{type.block_bytes}, &bytes);
  for (uint32_t i = 1; i < tensor->num_dims; ++i) {
    overflow =
        overflow || __builtin_mul_overflow(bytes, static_cast<uint64_t>(tensor->dims[i]), &bytes);
  }
  if (overflow) {
    return cursor.Error("tensor ", GgufQuoted(tensor->name), ": ", tensor->Describe(),
                        " has over 2^64 bytes");
  }
  tensor->bytes = bytes;
  return OkStatus();
}

StatusOr<GgufTensor> ReadTensor(Cursor* cursor) {
  GgufTensor tensor;
  CRIA_ASSIGN_OR_RETURN(tensor.name, cursor->String("a tensor's name"));
  if (tensor.name.size() > kGgufTensorNameBytesMax) {
    return cursor->Error("a tensor's name of ", tensor.name.size(), " bytes, at most ",
                         kGgufTensorNameBytesMax);
  }
  CRIA_ASSIGN_OR_RETURN(tensor.num_dims, cursor->Scalar<uint32_t>("a number of dimensions"));
  if (tensor.num_dims > kGgufDimsMax) {
    return cursor->Error("tensor ", GgufQuoted(tensor.name), " has ", tensor.num_dims,
                         " dimensions, at most ", kGgufDimsMax);
  }
  for (uint32_t i = 0; i < tensor.num_dims; ++i) {
    CRIA_ASSIGN_OR_RETURN(const uint64_t dim, cursor->Scalar<uint64_t>("a dimension"));
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return cursor->Error("tensor ", GgufQuoted(tensor.name), ": dimension ", dim);
    }
    tensor.dims[i] = static_cast<int64_t>(dim);
  }
  CRIA_ASSIGN_OR_RETURN(const uint32_t type, cursor->Scalar<uint32_t>("a tensor's type"));
  tensor.type = FindGgmlType(type);
  if (tensor.type == nullptr) {
    return cursor->Error("tensor ", GgufQuoted(tensor.name), ": no type has the number ", type);
  }
  CRIA_ASSIGN_OR_RETURN(tensor.offset, cursor->Scalar<uint64_t>("a tensor's offset"));
  CRIA_RETURN_IF_ERROR(MeasureTensor(*cursor, &tensor));
  return tensor;
}

// Indices of `items`, sorted by what `name` gives; the error names one that is there twice.
template <typename Item, typename Name>
std::vector<uint32_t> SortedBy(const std::vector<Item>& items, const Name& name) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return name(items[a]) < name(items[b]); });
  return order;
}

StatusOr<int64_t> IntegerAt(GgufValueType type, const char* from) {
  switch (type) {
    case GgufValueType::kU8:
      return Load<uint8_t>(from);
    case GgufValueType::kI8:
      return Load<int8_t>(from);
    case GgufValueType::kU16:
      return Load<uint16_t>(from);
    case GgufValueType::kI16:
      return Load<int16_t>(from);
    case GgufValueType::kU32:
      return Load<uint32_t>(from);
    case GgufValueType::kI32:
      return Load<int32_t>(from);
    case GgufValueType::kI64:
      return Load<int64_t>(from);
    case GgufValueType::kU64: {
      const auto value = Load<uint64_t>(from);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return OutOfRangeError(value, " is over 2^63 - 1");
      }
      return static_cast<int64_t>(value);
    }
    default:
      return InvalidArgumentError("not an integer");
  }
}

bool IsInteger(GgufValueType type) {
  return type != GgufValueType::kF32 && type != GgufValueType::kF64 &&
         type != GgufValueType::kBool && type != GgufValueType::kString &&
         type != GgufValueType::kArray;
}

}  // namespace

std::vector<int64_t> GgufTensor::shape() const { return {dims.rend() - num_dims, dims.rend()}; }

std::string GgufTensor::Describe() const {
  std::string out = StrCat(type->name, " [");
  for (uint32_t i = num_dims; i > 0; --i) out += StrCat(i == num_dims ? "" : ", ", dims[i - 1]);
  return out + "]";
}

StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return FromMapped(std::move(file), path);
}

StatusOr<GgufFile> GgufFile::FromMapped(MappedFile mapped, const std::string& path) {
  GgufFile file;
  file.path_ = path;
  file.file_ = std::move(mapped);
  CRIA_RETURN_IF_ERROR(file.Parse());
  return file;
}

Status GgufFile::Parse() {
  const std::string_view bytes = file_.bytes();
  Cursor cursor(bytes, path_);
  CRIA_ASSIGN_OR_RETURN(const std::string_view magic, cursor.Bytes(4, "the magic"));
  if (magic != "GGUF") {
    return DataLossError(path_, ": begins with ", GgufQuoted(magic), ", a GGUF file with \"GGUF\"");
  }
  CRIA_ASSIGN_OR_RETURN(version_, cursor.Scalar<uint32_t>("the version"));
  if (version_ != 0 && (version_ & 0xffff) == 0) {
    return UnimplementedError(path_, ": a big-endian GGUF file (version field ", version_,
                              "); only little-endian ones are read");
  }
  if (version_ != 2 && version_ != 3) {
    return UnimplementedError(path_, ": GGUF version ", version_, "; versions 2 and 3 are read");
  }
  CRIA_ASSIGN_OR_RETURN(const uint64_t num_tensors, cursor.Count("tensors", kTensorBytesMin));
  CRIA_ASSIGN_OR_RETURN(const uint64_t num_entries, cursor.Count("keys", kEntryBytesMin));
  if (std::max(num_tensors, num_entries) > std::numeric_limits<uint32_t>::max()) {
    return cursor.Error(num_tensors, " tensors and ", num_entries, " keys are over 2^32");
  }
  for (uint64_t i = 0; i < num_entries; ++i) {
    CRIA_ASSIGN_OR_RETURN(const GgufEntry entry, ReadEntry(&cursor, bytes));
    entries_.push_back(entry);
  }
  CRIA_RETURN_IF_ERROR(CheckEntries());
  for (uint64_t i = 0; i < num_tensors; ++i) {
    CRIA_ASSIGN_OR_RETURN(const GgufTensor tensor, ReadTensor(&cursor));
    tensors_.push_back(tensor);
  }
  // A file without tensors may end where its metadata does.
  data_start_ =
      std::min<uint64_t>((cursor.at() + alignment_ - 1) / alignment_ * alignment_, bytes.size());
  return CheckTensors();
}

Status GgufFile::CheckEntries() {
  const auto key_of = [](const GgufEntry& entry) { return entry.key; };
  entries_by_key_ = SortedBy(entries_, key_of);
  for (size_t i = 1; i < entries_by_key_.size(); ++i) {
    const std::string_view key = entries_[entries_by_key_[i]].key;
    if (key == entries_[entries_by_key_[i - 1]].key) {
      return DataLossError(path_, ": key ", GgufQuoted(key), " is there twice");
    }
  }
  const GgufEntry* alignment = FindEntry("general.alignment");
  if (alignment == nullptr) return OkStatus();
  if (alignment->type != GgufValueType::kU32) {
    return WrongType(*alignment, GgufValueTypeName(GgufValueType::kU32));
  }
  alignment_ = Load<uint32_t>(alignment->payload.data());
  if (alignment_ == 0 || alignment_ % 8 != 0) {
    return DataLossError(path_, ": general.alignment is ", alignment_,
                         ", expected a multiple of 8");
  }
  return OkStatus();
}

Status GgufFile::CheckTensors() {
  tensors_by_name_ = SortedBy(tensors_, [](const GgufTensor& tensor) { return tensor.name; });
  for (size_t i = 1; i < tensors_by_name_.size(); ++i) {
    const std::string_view name = tensors_[tensors_by_name_[i]].name;
    if (name == tensors_[tensors_by_name_[i - 1]].name) {
      return DataLossError(path_, ": tensor ", GgufQuoted(name), " is there twice");
    }
  }
  const uint64_t data_bytes = file_.bytes().size() - data_start_;
  for (const GgufTensor& tensor : tensors_) {
    if (tensor.offset % alignment_ != 0) {
      return DataLossError(path_, ": tensor ", GgufQuoted(tensor.name), ": offset ", tensor.offset,
                           " is no multiple of the alignment ", alignment_);
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      return DataLossError(path_, ": tensor ", GgufQuoted(tensor.name), ": ", tensor.Describe(),
                           " has ", tensor.bytes, " bytes at offset ", tensor.offset,
                           " of the data, which has ", data_bytes);
    }
  }
  std::vector<uint32_t> order = SortedBy(
      tensors_, [](const GgufTensor& tensor) { return std::pair(tensor.offset, tensor.bytes); });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = tensors_[order[i - 1]];
    const GgufTensor& tensor = tensors_[order[i]];
    if (tensor.offset < before.offset + before.bytes) {
      return DataLossError(path_, ": tensors ", GgufQuoted(before.name), " and ",
                           GgufQuoted(tensor.name), " overlap at offset ", tensor.offset);
    }
  }
  return OkStatus();
}

const GgufEntry* GgufFile::FindEntry(std::string_view key) const {
  const auto found =
      std::lower_bound(entries_by_key_.begin(), entries_by_key_.end(), key,
                       [&](uint32_t i, std::string_view k) { return entries_[i].key < k; });
  if (found == entries_by_key_.end() || entries_[*found].key != key) return nullptr;
  return &entries_[*found];
}

const GgufTensor* GgufFile::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name,
                       [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (found == tensors_by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

std::string_view GgufFile::Data(const GgufTensor& tensor) const {
  return file_.bytes().substr(data_start_ + tensor.offset, tensor.bytes);
}

StatusOr<const GgufEntry*> GgufFile::Get(std::string_view key) const {
  const GgufEntry* entry = FindEntry(key);
  if (entry == nullptr) return NotFoundError(path_, ": no key ", key);
  return entry;
}

Status GgufFile::WrongType(const GgufEntry& entry, const char* expected) const {
  std::string is = GgufValueTypeName(entry.type);
  if (entry.type == GgufValueType::kArray) {
    is = StrCat("an array of ", entry.count, " ", GgufValueTypeName(entry.element));
  }
  return InvalidArgumentError(path_, ": key ", entry.key, " is ", is, "; expected ", expected);
}

StatusOr<int64_t> GgufFile::Integer(std::string_view key) const {
  CRIA_ASSIGN_OR_RETURN(const GgufEntry* entry, Get(key));
  if (!IsInteger(entry->type)) return WrongType(*entry, "an integer");
  StatusOr<int64_t> value = IntegerAt(entry->type, entry->payload.data());
  if (!value.ok()) return Annotate(value.status(), StrCat(path_, ": key ", key));
  return value;
}

StatusOr<double> GgufFile::Real(std::string_view key) const {
  CRIA_ASSIGN_OR_RETURN(const GgufEntry* entry, Get(key));
  if (entry->type == GgufValueType::kF64) return Load<double>(entry->payload.data());
  if (entry->type != GgufValueType::kF32) return WrongType(*entry, "float32 or float64");
  return ShortestDouble(Load<float>(entry->payload.data()));
}

StatusOr<bool> GgufFile::Bool(std::string_view key) const {
  CRIA_ASSIGN_OR_RETURN(const GgufEntry* entry, Get(key));
  if (entry->type != GgufValueType::kBool) return WrongType(*entry, "bool");
  return entry->payload[0] != 0;
}

StatusOr<std::string_view> GgufFile::String(std::string_view key) const {
  CRIA_ASSIGN_OR_RETURN(const GgufEntry* entry, Get(key));
  if (entry->type != GgufValueType::kString) return WrongType(*entry, "string");
  if (!IsUtf8(entry->payload)) return DataLossError(path_, ": key ", key, ": not UTF-8");
  return entry->payload;
}

StatusOr<std::vector<std::string_view>> GgufFile::Strings(std::string_view key) const {
  CRIA_ASSIGN_OR_RETURN(const GgufEntry* entry, Get(key));
  if (entry->type != GgufValueType::kArray || entry->element != GgufValueType::kString) {
    return WrongType(*entry, "an array of string");
  }
  std::vector<std::string_view> out;
  out.reserve(entry->count);  // each takes 8 bytes of the file at least: checked when parsed
  Cursor cursor(entry->payload, path_);
  for (uint64_t i = 0; i < entry->count; ++i) {
    CRIA_ASSIGN_OR_RETURN(const std::string_view text, cursor.String("a string"));
    if (!IsUtf8(text)) return DataLossError(path_, ": key ", key, "[", i, "]: not UTF-8");
    out.push_back(text);
  }
  return out;
}

StatusOr<std::vector<int64_t>> GgufFile::Integers(std::string_view key) const {
  CRIA_ASSIGN_OR_RETURN(const GgufEntry* entry, Get(key));
  if (entry->type != GgufValueType::kArray || !IsInteger(entry->element)) {
    return WrongType(*entry, "an array of integers");
  }
  std::vector<int64_t> out;
  out.reserve(entry->count);
  const size_t size = GgufScalarBytes(entry->element);
  for (uint64_t i = 0; i < entry->count; ++i) {
    const StatusOr<int64_t> value = IntegerAt(entry->element, entry->payload.data() + i * size);
    if (!value.ok()) return Annotate(value.status(), StrCat(path_, ": key ", key, "[", i, "]"));
    out.push_back(*value);
  }
  return out;
}

}  // namespace cria::model

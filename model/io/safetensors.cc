#include "model/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/hash.h"

namespace cria::model {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 64;
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr char kMetadataKey[] = "__metadata__";

struct DtypeRow {
  const char* name;
  int bits;
};

// Indexed by StDtype.
constexpr DtypeRow kDtypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};
static_assert(std::size(kDtypes) == static_cast<size_t>(StDtype::kU64) + 1);

// A name from a file, fit for a message: quoted, short, no control characters.
std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 120;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  out += text.size() > kMaxShown ? "...\"" : "\"";
  return out;
}

// Well-formed UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    size_t extra = 0;
    uint32_t code = 0;
    uint32_t least = 0;
    if (lead < 0x80) {
      ++i;
      continue;
    } else if (lead >> 5 == 0x6) {
      extra = 1, code = lead & 0x1f, least = 0x80;
    } else if (lead >> 4 == 0xe) {
      extra = 2, code = lead & 0xf, least = 0x800;
    } else if (lead >> 3 == 0x1e) {
      extra = 3, code = lead & 0x7, least = 0x10000;
    } else {
      return false;
    }
    if (text.size() - i <= extra) return false;
    for (size_t k = 1; k <= extra; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if (byte >> 6 != 0x2) return false;
      code = code << 6 | (byte & 0x3f);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += extra + 1;
  }
  return true;
}

// A JSON string as serde_json writes it, quotes included.
void AppendJsonString(std::string* out, std::string_view text) {
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\b':
        out->append("\\b");
        break;
      case '\f':
        out->append("\\f");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out->append(StrFormat("\\u%04x", static_cast<unsigned>(c)));
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

// Receives the header's JSON token by token and accepts nothing but the format's grammar, so that
// no tree is built and the nesting of a hostile file costs nothing. What it does not know inside a
// tensor's object is skipped, as the reference does.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::vector<TensorInfo>* tensors, std::map<std::string, std::string>* metadata)
      : tensors_(tensors), metadata_(metadata) {}

  const std::string& error() const { return error_; }

  bool null() override { return Scalar("null"); }
  bool boolean(bool) override { return Scalar("a boolean"); }
  // The lexer calls this one for tokens with a minus sign only.
  bool number_integer(number_integer_t) override { return Scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Scalar("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { return Scalar("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (skip_depth_ > 0) return true;
    if (state_ == State::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Fail("ValidationOverflow: tensor ", Quoted(current_.name), ": dimension ", value);
      }
      if (current_.shape.size() >= kMaxRank) {
        return Fail("TensorInvalidInfo: tensor ", Quoted(current_.name), " has more than ",
                    kMaxRank, " dimensions");
      }
      current_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (state_ == State::kOffsets) {
      if (num_offsets_ >= 2) return BadTensor("data_offsets must be two numbers");
      (num_offsets_++ == 0 ? current_.begin : current_.end) = value;
      return true;
    }
    return Scalar("a number");
  }

  bool string(string_t& value) override {
    if (skip_depth_ > 0) return true;
    if (state_ == State::kMetadata) {
      (*metadata_)[key_] = std::move(value);
      return true;
    }
    if (state_ == State::kTensor && field_ == Field::kDtype) {
      const StatusOr<StDtype> dtype = StDtypeFromName(value);
      if (!dtype.ok()) return BadTensor("unknown dtype ", Quoted(value));
      current_.dtype = *dtype;
      return true;
    }
    return Scalar("a string");
  }

  bool key(string_t& value) override {
    if (skip_depth_ > 0) return true;
    switch (state_) {
      case State::kTop:
        current_ = TensorInfo();
        current_.name = std::move(value);
        return true;
      case State::kMetadata:
        key_ = std::move(value);
        if (metadata_->contains(key_))
          return Fail(kBadJson, "metadata key ", Quoted(key_), " twice");
        return true;
      default:
        field_ = value == "dtype"          ? Field::kDtype
                 : value == "shape"        ? Field::kShape
                 : value == "data_offsets" ? Field::kOffsets
                                           : Field::kOther;
        if (field_ == Field::kOther) return true;
        const unsigned bit = 1u << static_cast<unsigned>(field_);
        if (seen_fields_ & bit) return BadTensor("\"", value, "\" twice");
        seen_fields_ |= bit;
        return true;
    }
  }

  bool start_object(std::size_t) override {
    if (skip_depth_ > 0) return Skip(+1);
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTop:
        if (current_.name == kMetadataKey) {
          if (has_metadata_) return Fail(kBadJson, "\"__metadata__\" twice");
          has_metadata_ = true;
          state_ = State::kMetadata;
        } else {
          state_ = State::kTensor;
          seen_fields_ = 0;
          num_offsets_ = 0;
        }
        return true;
      case State::kTensor:
        if (field_ == Field::kOther) return Skip(+1);
        [[fallthrough]];
      default:
        return Scalar("an object");
    }
  }

  bool end_object() override {
    if (skip_depth_ > 0) return Skip(-1);
    if (state_ == State::kTensor) {
      if (seen_fields_ != kAllFields) return BadTensor("dtype, shape or data_offsets is missing");
      tensors_->push_back(std::move(current_));
    }
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (skip_depth_ > 0) return Skip(+1);
    if (state_ == State::kTensor) {
      if (field_ == Field::kShape) {
        state_ = State::kShape;
        return true;
      }
      if (field_ == Field::kOffsets) {
        state_ = State::kOffsets;
        return true;
      }
      if (field_ == Field::kOther) return Skip(+1);
    }
    return Scalar("an array");
  }

  bool end_array() override {
    if (skip_depth_ > 0) return Skip(-1);
    if (state_ == State::kOffsets && num_offsets_ != 2) {
      return BadTensor("data_offsets must be two numbers");
    }
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return Fail(kBadJson, "not JSON at byte ", position, " of the header");
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum class Field : unsigned { kDtype, kShape, kOffsets, kOther };
  static constexpr unsigned kAllFields = 7;
  static constexpr char kBadJson[] = "InvalidHeaderDeserialization: ";

  template <typename... Parts>
  bool Fail(const Parts&... parts) {
    error_ = StrCat(parts...);
    return false;
  }

  template <typename... Parts>
  bool BadTensor(const Parts&... parts) {
    return Fail(kBadJson, "tensor ", Quoted(current_.name), ": ", parts...);
  }

  bool Skip(int step) {
    skip_depth_ += step;
    return true;
  }

  // A value where the grammar has none of its kind.
  bool Scalar(const char* what) {
    if (skip_depth_ > 0 || (state_ == State::kTensor && field_ == Field::kOther)) return true;
    if (state_ == State::kMetadata) {
      return Fail(kBadJson, "metadata key ", Quoted(key_), " is ", what, ", not a string");
    }
    if (state_ == State::kTop) {
      return Fail(kBadJson, Quoted(current_.name), " is ", what, ", not an object");
    }
    return BadTensor("unexpected ", what);
  }

  std::vector<TensorInfo>* tensors_;
  std::map<std::string, std::string>* metadata_;
  std::string error_;
  State state_ = State::kStart;
  Field field_ = Field::kOther;
  unsigned seen_fields_ = 0;
  int num_offsets_ = 0;
  int64_t skip_depth_ = 0;
  bool has_metadata_ = false;
  std::string key_;
  TensorInfo current_;
};

// Bytes of the tensor; the error names the rule it breaks.
StatusOr<uint64_t> TensorBytes(const std::string& name, StDtype dtype,
                               const std::vector<int64_t>& shape) {
  uint64_t bits = 1;
  bool overflow = false;
  for (const int64_t dim : shape) {
    if (dim < 0) {
      return InvalidArgumentError("TensorInvalidInfo: tensor ", Quoted(name), ": ",
                                  DescribeTensor(dtype, shape));
    }
    overflow = overflow || __builtin_mul_overflow(bits, static_cast<uint64_t>(dim), &bits);
  }
  overflow =
      overflow || __builtin_mul_overflow(bits, static_cast<uint64_t>(StDtypeBits(dtype)), &bits);
  if (overflow) {
    return InvalidArgumentError("ValidationOverflow: tensor ", Quoted(name), ": ",
                                DescribeTensor(dtype, shape), " has over 2^64 bits");
  }
  if (bits % 8 != 0) {
    return InvalidArgumentError("MisalignedSlice: tensor ", Quoted(name), ": ",
                                DescribeTensor(dtype, shape), " is no whole number of bytes");
  }
  return bits / 8;
}

// Sorts by offset and checks that the tensors tile [0, data_bytes) exactly.
Status CheckLayout(std::vector<TensorInfo>* tensors, uint64_t data_bytes) {
  std::sort(tensors->begin(), tensors->end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t expected_begin = 0;
  for (const TensorInfo& tensor : *tensors) {
    if (tensor.begin != expected_begin || tensor.end < tensor.begin) {
      return DataLossError("InvalidOffset: tensor ", Quoted(tensor.name), " has [", tensor.begin,
                           ", ", tensor.end, "), but the one before it ends at ", expected_begin);
    }
    expected_begin = tensor.end;
    const StatusOr<uint64_t> bytes = TensorBytes(tensor.name, tensor.dtype, tensor.shape);
    if (!bytes.ok()) return DataLossError(Message(bytes.status()));
    if (tensor.end - tensor.begin != *bytes) {
      return DataLossError("TensorInvalidInfo: tensor ", Quoted(tensor.name), ": ",
                           DescribeTensor(tensor.dtype, tensor.shape), " needs ", *bytes,
                           " bytes, data_offsets hold ", tensor.end - tensor.begin);
    }
  }
  if (expected_begin != data_bytes) {
    return DataLossError("MetadataIncompleteBuffer: the tensors end at byte ", expected_begin,
                         " of the data, the file has ", data_bytes);
  }
  return OkStatus();
}

StatusOr<std::string_view> HeaderOf(std::string_view bytes) {
  if (bytes.size() < 8) {
    return DataLossError("HeaderTooSmall: the file has ", bytes.size(), " bytes");
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | static_cast<uint8_t>(bytes[i]);
  if (header_bytes > kMaxHeaderBytes) {
    return DataLossError("HeaderTooLarge: ", header_bytes, " bytes, at most ", kMaxHeaderBytes);
  }
  if (header_bytes > bytes.size() - 8) {
    return DataLossError("InvalidHeaderLength: a header of ", header_bytes, " bytes in a file of ",
                         bytes.size());
  }
  const std::string_view header = bytes.substr(8, header_bytes);
  if (!IsUtf8(header)) return DataLossError("InvalidHeader: not UTF-8");
  if (header.empty() || header.front() != '{') {
    return DataLossError("InvalidHeaderStart: the header does not begin with '{'");
  }
  // The JSON library takes a zero byte for the end of its input; what follows would go unread.
  const size_t zero = header.find('\0');
  if (zero != std::string_view::npos) {
    return DataLossError("InvalidHeaderDeserialization: not JSON at byte ", zero, " of the header");
  }
  return header;
}

// A tensor of a file to be written, with the bytes that its dtype and shape need.
struct PlannedTensor {
  const TensorToStream* tensor;
  uint64_t bytes;
};

std::string BuildHeader(const std::vector<PlannedTensor>& sorted,
                        const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (header.back() != '{') header += ',';
      AppendJsonString(&header, key);
      header += ':';
      AppendJsonString(&header, value);
    }
    header += '}';
  }
  uint64_t begin = 0;
  for (const auto& [tensor, bytes] : sorted) {
    if (header.size() > 1) header += ',';
    AppendJsonString(&header, tensor->name);
    header += StrCat(":{\"dtype\":\"", StDtypeName(tensor->dtype), "\",\"shape\":[");
    for (size_t i = 0; i < tensor->shape.size(); ++i) {
      header += StrCat(i == 0 ? "" : ",", tensor->shape[i]);
    }
    const uint64_t end = begin + bytes;
    header += StrCat("],\"data_offsets\":[", begin, ",", end, "]}");
    begin = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

// The tensors in the file's order, checked.
StatusOr<std::vector<PlannedTensor>> SortTensors(
    const std::vector<TensorToStream>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::vector<PlannedTensor> sorted;
  std::vector<std::string_view> names;
  for (const TensorToStream& tensor : tensors) {
    if (!IsUtf8(tensor.name) || tensor.name == kMetadataKey) {
      return InvalidArgumentError("InvalidHeader: ", Quoted(tensor.name),
                                  " cannot be a tensor's name");
    }
    if (tensor.shape.size() > kMaxRank) {
      return InvalidArgumentError("TensorInvalidInfo: tensor ", Quoted(tensor.name), " has ",
                                  tensor.shape.size(), " dimensions, at most ", kMaxRank);
    }
    CRIA_ASSIGN_OR_RETURN(const uint64_t bytes,
                          TensorBytes(tensor.name, tensor.dtype, tensor.shape));
    sorted.push_back({&tensor, bytes});
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return InvalidArgumentError("tensor ", Quoted(*twice), " given twice");
  for (const auto& [key, value] : metadata) {
    if (!IsUtf8(key) || !IsUtf8(value)) {
      return InvalidArgumentError("InvalidHeader: metadata ", Quoted(key), " is not UTF-8");
    }
  }
  std::sort(sorted.begin(), sorted.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return a.tensor->dtype != b.tensor->dtype ? a.tensor->dtype > b.tensor->dtype
                                              : a.tensor->name < b.tensor->name;
  });
  return sorted;
}

struct PlannedFile {
  std::vector<PlannedTensor> tensors;
  SafetensorsHeader header;
};

StatusOr<PlannedFile> PlanFile(const std::vector<TensorToStream>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  PlannedFile plan;
  CRIA_ASSIGN_OR_RETURN(plan.tensors, SortTensors(tensors, metadata));
  const std::string header = BuildHeader(plan.tensors, metadata);
  if (header.size() > kMaxHeaderBytes) {
    return InvalidArgumentError("HeaderTooLarge: ", header.size(), " bytes, at most ",
                                kMaxHeaderBytes);
  }
  for (int i = 0; i < 8; ++i) {
    plan.header.bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  plan.header.bytes += header;
  plan.header.file_bytes = plan.header.bytes.size();
  for (const PlannedTensor& tensor : plan.tensors) plan.header.file_bytes += tensor.bytes;
  return plan;
}

Status WrongLength(const TensorToStream& tensor, uint64_t wanted, uint64_t got) {
  return InvalidArgumentError("TensorInvalidInfo: tensor ", Quoted(tensor.name), ": ",
                              DescribeTensor(tensor.dtype, tensor.shape), " needs ", wanted,
                              " bytes, got ", got);
}

}  // namespace

const char* StDtypeName(StDtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

int StDtypeBits(StDtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bits; }

StatusOr<StDtype> StDtypeFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kDtypes); ++i) {
    if (name == kDtypes[i].name) return static_cast<StDtype>(i);
  }
  return InvalidArgumentError("unknown dtype ", Quoted(name));
}

std::string DescribeTensor(StDtype dtype, const std::vector<int64_t>& shape) {
  std::string out = StrCat(StDtypeName(dtype), " [");
  for (size_t i = 0; i < shape.size(); ++i) out += StrCat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return FromMapped(std::move(file), path);
}

StatusOr<SafetensorsFile> SafetensorsFile::FromMapped(MappedFile mapped, const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = std::move(mapped);
  const std::string_view bytes = file.file_.bytes();
  const StatusOr<std::string_view> header = HeaderOf(bytes);
  if (!header.ok()) return Annotate(header.status(), path);
  file.data_start_ = 8 + header->size();

  HeaderReader reader(&file.tensors_, &file.metadata_);
  if (!nlohmann::json::sax_parse(header->begin(), header->end(), &reader)) {
    return DataLossError(path, ": ", reader.error());
  }
  const Status layout = CheckLayout(&file.tensors_, bytes.size() - file.data_start_);
  if (!layout.ok()) return Annotate(layout, path);

  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), size_t{0});
  const auto name_of = [&file](size_t i) -> const std::string& { return file.tensors_[i].name; };
  std::sort(file.by_name_.begin(), file.by_name_.end(),
            [&](size_t a, size_t b) { return name_of(a) < name_of(b); });
  const auto twice =
      std::adjacent_find(file.by_name_.begin(), file.by_name_.end(),
                         [&](size_t a, size_t b) { return name_of(a) == name_of(b); });
  if (twice != file.by_name_.end()) {
    return DataLossError(path, ": InvalidHeaderDeserialization: tensor ", Quoted(name_of(*twice)),
                         " twice");
  }
  return file;
}

const TensorInfo* SafetensorsFile::Find(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](size_t i, std::string_view n) { return tensors_[i].name < n; });
  if (it == by_name_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

std::string_view SafetensorsFile::Data(const TensorInfo& tensor) const {
  return file_.bytes().substr(data_start_ + tensor.begin, tensor.end - tensor.begin);
}

StatusOr<std::string_view> SafetensorsFile::DataOf(std::string_view name, StDtype dtype,
                                                   const std::vector<int64_t>& shape) const {
  const TensorInfo* info = Find(name);
  if (info == nullptr) return NotFoundError(path_, ": there is no tensor ", Quoted(name));
  if (info->dtype != dtype || info->shape != shape) {
    return InvalidArgumentError(path_, ": tensor ", Quoted(name), " is ",
                                DescribeTensor(info->dtype, info->shape), "; expected ",
                                DescribeTensor(dtype, shape));
  }
  return Data(*info);
}

StatusOr<WrittenFile> WriteSafetensors(const std::string& path,
                                       const std::vector<TensorToWrite>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorToStream> streams;
  for (const TensorToWrite& tensor : tensors) {
    streams.push_back(
        {tensor.name, tensor.dtype, tensor.shape,
         [data = tensor.data](const TensorToStream::Append& append) { return append(data); }});
    // Before anything is written: a caller's buffer of the wrong size is found early.
    const StatusOr<uint64_t> bytes = TensorBytes(tensor.name, tensor.dtype, tensor.shape);
    if (bytes.ok() && *bytes != tensor.data.size()) {
      return Annotate(WrongLength(streams.back(), *bytes, tensor.data.size()),
                      StrCat("write ", path));
    }
  }
  return StreamSafetensors(path, streams, metadata);
}

StatusOr<WrittenFile> StreamSafetensors(const std::string& path,
                                        const std::vector<TensorToStream>& tensors,
                                        const std::map<std::string, std::string>& metadata) {
  const StatusOr<PlannedFile> plan = PlanFile(tensors, metadata);
  if (!plan.ok()) return Annotate(plan.status(), StrCat("write ", path));

  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  Hasher hasher;
  // In pieces, so that what was just hashed is still in the cache when it is written.
  const auto append = [&](std::string_view bytes) {
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const std::string_view piece = bytes.substr(at, kPieceBytes);
      hasher.Update(piece);
      CRIA_RETURN_IF_ERROR(file->Append(piece));
    }
    return OkStatus();
  };
  CRIA_RETURN_IF_ERROR(append(plan->header.bytes));
  for (const auto& [tensor, bytes] : plan->tensors) {
    const uint64_t begin = file->size();
    CRIA_RETURN_IF_ERROR(tensor->write(append));
    if (file->size() - begin != bytes) {
      return Annotate(WrongLength(*tensor, bytes, file->size() - begin), StrCat("write ", path));
    }
  }
  WrittenFile written{file->size(), hasher.Hex()};
  CRIA_RETURN_IF_ERROR(file->Commit());
  return written;
}

StatusOr<SafetensorsHeader> PlanSafetensors(const std::vector<TensorToStream>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  CRIA_ASSIGN_OR_RETURN(PlannedFile plan, PlanFile(tensors, metadata));
  return std::move(plan.header);
}

}  // namespace cria::model

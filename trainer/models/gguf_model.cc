#include "trainer/models/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "model/io/gguf.h"
#include "model/io/gguf_llama.h"
#include "model/io/gguf_rope.h"
#include "model/io/gguf_writer.h"
#include "model/io/q8_0.h"
#include "model/io/qk_order.h"
#include "model/llama/load_weights.h"
#include "model/llama/parameters.h"
#include "trainer/models/gguf_tokenizer.h"

namespace cria::trainer {
namespace {

using model::GgmlType;
using model::GgufFile;
using model::GgufLlama;
using model::GgufWriter;
using model::LlamaTensor;
using model::StDtype;
using model::WeightInfo;

constexpr int64_t kPieceBytes = int64_t{4} << 20;

// The type that holds what a source's weight holds.
GgmlType TypeHolding(StDtype dtype) {
  switch (dtype) {
    case StDtype::kF16:
    case StDtype::kF8E5M2:
    case StDtype::kF8E4M3:
      return GgmlType::kF16;
    case StDtype::kBF16:
      return GgmlType::kBF16;
    default:
      return GgmlType::kF32;
  }
}

StDtype PlainType(GgmlType type) {
  CRIA_CHECK(type != GgmlType::kQ8_0);
  return type == GgmlType::kF16    ? StDtype::kF16
         : type == GgmlType::kBF16 ? StDtype::kBF16
                                   : StDtype::kF32;
}

// One export under way.
class Exporter {
 public:
  Exporter(const ModelFiles& files, const GgufExportOptions& options)
      : files_(files),
        options_(options),
        source_(*files.weights),
        gguf_(dynamic_cast<const GgufLlama*>(files.weights.get())),
        tensors_(model::LlamaTensors(files.config)) {}

  Status Write(const std::string& path) {
    CRIA_RETURN_IF_ERROR(model::CheckWeights(source_, model::ParameterLayout(files_.config)));
    for (const LlamaTensor& tensor : tensors_) types_.push_back(TypeFor(tensor));
    CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufWriter> writer, GgufWriter::Create(path));
    CRIA_ASSIGN_OR_RETURN(const uint32_t file_type, FileType());
    CRIA_RETURN_IF_ERROR(model::AddLlamaKeys(files_.config, file_type, writer.get()));
    CRIA_RETURN_IF_ERROR(AddTokenizerKeys(files_, options_.keep_tokenizer, writer.get()));
    std::vector<float> divisors;
    if (files_.config.rope_scaling.type == "llama3") {
      divisors = model::RopeDivisors(files_.config);
      writer->AddTensor(model::kRopeFreqsName, {static_cast<int64_t>(divisors.size())},
                        GgmlType::kF32);
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      writer->AddTensor(tensors_[i].gguf_name, tensors_[i].shape, types_[i]);
    }
    CRIA_RETURN_IF_ERROR(writer->BeginData());
    CRIA_RETURN_IF_ERROR(writer->Append(
        {reinterpret_cast<const char*>(divisors.data()), divisors.size() * sizeof(float)}));
    for (size_t i = 0; i < tensors_.size(); ++i) {
      CRIA_RETURN_IF_ERROR(WriteTensor(tensors_[i], types_[i], writer.get()));
    }
    return writer->Commit();
  }

 private:
  // CheckWeights has seen it.
  const WeightInfo& Info(const LlamaTensor& tensor) const {
    const WeightInfo* info = source_.Find(tensor.hf_name);
    CRIA_CHECK(info != nullptr, tensor.hf_name);
    return *info;
  }

  GgmlType TypeFor(const LlamaTensor& tensor) const {
    if (tensor.is_norm()) return GgmlType::kF32;
    const WeightInfo& info = Info(tensor);
    const GgmlType own = gguf_ != nullptr ? gguf_->StoredType(info) : TypeHolding(info.dtype);
    const GgmlType type = options_.type.value_or(own);
    if (type == GgmlType::kQ8_0 && info.columns() % model::kQ8BlockElements != 0) {
      return GgmlType::kF16;
    }
    return type;
  }

  // What the file says of itself: the type asked for, else what its source said, else that of most
  // of its numbers.
  StatusOr<uint32_t> FileType() const {
    if (options_.type) return model::GgufFileType(*options_.type);
    if (gguf_ != nullptr && gguf_->file().Has("general.file_type")) {
      CRIA_ASSIGN_OR_RETURN(const int64_t type, gguf_->file().Integer("general.file_type"));
      return static_cast<uint32_t>(type);
    }
    std::map<GgmlType, int64_t> elements;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].is_norm())
        elements[types_[i]] += tensors_[i].shape[0] * tensors_[i].shape[1];
    }
    const auto most =
        std::max_element(elements.begin(), elements.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return model::GgufFileType(most->first);
  }

  // Pieces of whole heads for Q and K, of some MiB for all others.
  Status WriteTensor(const LlamaTensor& tensor, GgmlType type, GgufWriter* writer) {
    const WeightInfo& info = Info(tensor);
    const int64_t row_bytes = model::GgmlRowBytes(type, info.columns());
    const int64_t head_dim = files_.config.HeadDim();
    const int64_t step = tensor.is_qk ? head_dim : std::max<int64_t>(1, kPieceBytes / row_bytes);
    std::vector<char> bytes, moved;
    for (int64_t begin = 0; begin < info.rows(); begin += step) {
      const int64_t end = std::min(begin + step, info.rows());
      bytes.resize(static_cast<size_t>((end - begin) * row_bytes));
      const Status status = ReadPiece(info, begin, end, type, bytes.data());
      if (!status.ok()) return Annotate(status, StrCat(source_.path(), ": ", info.name));
      if (tensor.is_qk) {
        moved.resize(bytes.size());
        for (int64_t row = 0; row < head_dim; ++row) {
          std::memcpy(moved.data() + model::MetaRowFromHf(row, head_dim) * row_bytes,
                      bytes.data() + row * row_bytes, static_cast<size_t>(row_bytes));
        }
        bytes.swap(moved);
      }
      CRIA_RETURN_IF_ERROR(writer->Append({bytes.data(), bytes.size()}));
    }
    return OkStatus();
  }

  // Rows [begin, end), in Hugging Face's order, as they stand in the file.
  Status ReadPiece(const WeightInfo& info, int64_t begin, int64_t end, GgmlType type, char* to) {
    if (gguf_ != nullptr && gguf_->StoredType(info) == type) {  // the very bytes, also of Q8_0
      for (int64_t row = begin; row < end; ++row) {
        const std::string_view bytes = gguf_->StoredRow(info, row);
        std::memcpy(to, bytes.data(), bytes.size());
        to += bytes.size();
      }
      return OkStatus();
    }
    const int64_t n = (end - begin) * info.columns();
    if (type == GgmlType::kQ8_0) {
      values_.resize(static_cast<size_t>(n));
      CRIA_RETURN_IF_ERROR(source_.ReadRows(info, begin, end, StDtype::kF32, values_.data()));
      const Status status = model::QuantizeQ8(values_.data(), n, to);
      return status.ok() ? status : Annotate(status, StrCat("rows from ", begin, " on"));
    }
    CRIA_RETURN_IF_ERROR(source_.ReadRows(info, begin, end, PlainType(type), to));
    if (PlainType(type) == info.dtype || type == GgmlType::kF32) return OkStatus();
    return CheckNoOverflow(info, begin, end, type, to);
  }

  // A number that became infinite is lost, and nothing would say so.
  Status CheckNoOverflow(const WeightInfo& info, int64_t begin, int64_t end, GgmlType type,
                         const char* bytes) {
    const uint16_t exponent = type == GgmlType::kF16 ? 0x7c00 : 0x7f80;
    const int64_t n = (end - begin) * info.columns();
    for (int64_t i = 0; i < n; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, sizeof(bits));
      if ((bits & exponent) != exponent) continue;
      const int64_t row = begin + i / info.columns();
      values_.resize(static_cast<size_t>(info.columns()));
      CRIA_RETURN_IF_ERROR(source_.ReadRows(info, row, row + 1, StDtype::kF32, values_.data()));
      const float value = values_[static_cast<size_t>(i % info.columns())];
      if (!std::isfinite(value)) continue;
      return InvalidArgumentError("row ", row, ", column ", i % info.columns(), " is ", value,
                                  ", which ", model::GgmlTypeName(type), " can't hold");
    }
    return OkStatus();
  }

  const ModelFiles& files_;
  const GgufExportOptions& options_;
  const model::WeightSource& source_;
  const GgufLlama* const gguf_;  // null when the source is none
  const std::vector<LlamaTensor> tensors_;
  std::vector<GgmlType> types_;
  std::vector<float> values_;
};

}  // namespace

bool LooksLikeGgufModel(const std::string& path) {
  const StatusOr<MappedFile> file = MappedFile::Open(path);
  return file.ok() && file->bytes().starts_with("GGUF");
}

StatusOr<ModelFiles> OpenGgufModel(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
  CRIA_ASSIGN_OR_RETURN(std::unique_ptr<GgufLlama> llama, GgufLlama::Create(std::move(file)));
  ModelFiles files;
  files.path = path;
  files.format = ModelFormat::kGguf;
  files.config = llama->config();
  CRIA_RETURN_IF_ERROR(ReadGgufTokenizer(llama->file(), &files));
  FillSpecialIds(&files);
  files.weights = std::move(llama);
  return files;
}

Status ExportGguf(const ModelFiles& files, const std::string& path,
                  const GgufExportOptions& options) {
  if (!options.overwrite && Exists(path)) {
    return AlreadyExistsError("export to ", path, ": it exists already; choose another path");
  }
  const Status status = Exporter(files, options).Write(path);
  return status.ok() ? status : Annotate(status, StrCat("export to ", path));
}

}  // namespace cria::trainer

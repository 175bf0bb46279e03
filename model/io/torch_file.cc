#include "model/io/torch_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "model/io/pickle.h"
#include "model/io/zip_archive.h"

namespace cria::model {
namespace {

using Kind = PickleValue::Kind;

constexpr char kPickleEnd[] = "/data.pkl";

struct StorageType {
  const char* global;
  StDtype dtype;
};
constexpr StorageType kStorageTypes[] = {
    {"torch FloatStorage", StDtype::kF32},     {"torch HalfStorage", StDtype::kF16},
    {"torch BFloat16Storage", StDtype::kBF16}, {"torch DoubleStorage", StDtype::kF64},
    {"torch LongStorage", StDtype::kI64},      {"torch IntStorage", StDtype::kI32},
    {"torch ShortStorage", StDtype::kI16},     {"torch CharStorage", StDtype::kI8},
    {"torch ByteStorage", StDtype::kU8},       {"torch BoolStorage", StDtype::kBool},
};

// Indices into AllowedGlobals(): the storages, then these.
enum Global : size_t {
  kRebuildTensor = std::size(kStorageTypes),
  kRebuildParameter,
  kOrderedDict,
};

const std::vector<std::string>& AllowedGlobals() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const StorageType& type : kStorageTypes) all->push_back(type.global);
    all->push_back("torch._utils _rebuild_tensor_v2");
    all->push_back("torch._utils _rebuild_parameter");
    all->push_back("collections OrderedDict");
    return all;
  }();
  return *names;
}

// Reads the pickle's values as what torch.save means by them.
class DictReader {
 public:
  DictReader(const ZipArchive& zip, const Pickle& pickle, const std::string& prefix,
             const std::string& path)
      : pickle_(pickle), prefix_(prefix), path_(path) {
    for (const ZipEntry& entry : zip.entries()) data_.emplace(entry.name, entry.data);
  }

  StatusOr<std::vector<StridedTensor>> Read() const {
    const PickleValue& root = pickle_.at(pickle_.root());
    size_t first = 0;
    if (IsCall(root, kOrderedDict)) {
      first = 2;  // behind the global and its arguments
    } else if (root.kind != Kind::kDict) {
      return InvalidArgumentError(path_, ": what was saved is no dict of tensors");
    }
    std::vector<StridedTensor> tensors;
    std::set<std::string> names;
    for (size_t i = first; i + 1 < root.items.size(); i += 2) {
      const PickleValue& key = pickle_.at(root.items[i]);
      if (key.kind != Kind::kText) return InvalidArgumentError(path_, ": a key that is no text");
      const std::string name(key.text);
      if (!names.insert(name).second) return DataLossError(path_, ": ", name, " twice");
      CRIA_ASSIGN_OR_RETURN(StridedTensor tensor, ReadTensor(root.items[i + 1], name));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  static constexpr size_t kMaxRank = 2;

  bool IsCall(const PickleValue& value, size_t global) const {
    return value.kind == Kind::kCall &&
           pickle_.at(value.items[0]).integer == static_cast<int64_t>(global);
  }

  const PickleValue& Argument(const PickleValue& call, size_t i) const {
    return pickle_.at(pickle_.at(call.items[1]).items[i]);
  }
  size_t NumArguments(const PickleValue& call) const {
    return pickle_.at(call.items[1]).items.size();
  }

  Status Wrong(const std::string& name, const char* what) const {
    return InvalidArgumentError(path_, ": ", name, ": ", what);
  }

  StatusOr<StridedTensor> ReadTensor(uint32_t index, const std::string& name) const {
    const PickleValue* value = &pickle_.at(index);
    if (IsCall(*value, kRebuildParameter) && NumArguments(*value) >= 1) {
      value = &Argument(*value, 0);
    }
    // _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)
    if (!IsCall(*value, kRebuildTensor) || NumArguments(*value) < 4) {
      return Wrong(name, "not a plain tensor");
    }
    StridedTensor tensor;
    tensor.name = name;
    std::string_view storage;
    CRIA_RETURN_IF_ERROR(ReadStorage(Argument(*value, 0), name, &tensor.dtype, &storage));
    const PickleValue& offset = Argument(*value, 1);
    CRIA_RETURN_IF_ERROR(ReadSizes(Argument(*value, 2), name, &tensor.shape));
    CRIA_RETURN_IF_ERROR(ReadSizes(Argument(*value, 3), name, &tensor.strides));
    if (offset.kind != Kind::kInteger || tensor.strides.size() != tensor.shape.size()) {
      return Wrong(name, "a shape without its strides");
    }
    CRIA_RETURN_IF_ERROR(Place(storage, offset.integer, &tensor));
    return tensor;
  }

  Status ReadSizes(const PickleValue& value, const std::string& name,
                   std::vector<int64_t>* sizes) const {
    if (value.kind != Kind::kTuple || value.items.empty() || value.items.size() > kMaxRank) {
      return Wrong(name, "a weight has one or two dimensions");
    }
    for (const uint32_t item : value.items) {
      const PickleValue& size = pickle_.at(item);
      if (size.kind != Kind::kInteger || size.integer < 0) return Wrong(name, "a negative size");
      sizes->push_back(size.integer);
    }
    return OkStatus();
  }

  // ("storage", torch.FloatStorage, "0", "cpu", elements)
  Status ReadStorage(const PickleValue& value, const std::string& name, StDtype* dtype,
                     std::string_view* bytes) const {
    if (value.kind != Kind::kPersistent) return Wrong(name, "a tensor without a storage");
    const PickleValue& id = pickle_.at(value.items[0]);
    if (id.kind != Kind::kTuple || id.items.size() != 5) return Wrong(name, "no storage's id");
    const PickleValue &type = pickle_.at(id.items[1]), &key = pickle_.at(id.items[2]);
    if (type.kind != Kind::kGlobal || key.kind != Kind::kText ||
        type.integer >= static_cast<int64_t>(std::size(kStorageTypes))) {
      return Wrong(name, "no storage's id");
    }
    *dtype = kStorageTypes[type.integer].dtype;
    const auto found = data_.find(StrCat(prefix_, "/data/", key.text));
    if (found == data_.end()) {
      return DataLossError(path_, ": ", name, ": no storage ", std::string(key.text.substr(0, 40)));
    }
    *bytes = found->second;
    return OkStatus();
  }

  // Cuts the tensor's bytes from its storage.
  Status Place(std::string_view storage, int64_t offset, StridedTensor* tensor) const {
    const int64_t size = StDtypeBits(tensor->dtype) / 8;
    int64_t last = 0;  // from the first element to the last
    bool overflow = false;
    for (size_t i = 0; i < tensor->shape.size(); ++i) {
      if (tensor->shape[i] == 0) return Wrong(tensor->name, "an empty weight");
      int64_t step = 0;
      overflow =
          overflow || __builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides[i], &step);
      overflow = overflow || __builtin_add_overflow(last, step, &last);
    }
    int64_t end = 0;
    overflow = overflow || offset < 0 || __builtin_add_overflow(offset, last, &end) ||
               end >= static_cast<int64_t>(storage.size()) / size;
    // An expanded tensor (stride 0) is larger than its bytes: nothing that training saves.
    int64_t elements = 1;
    for (const int64_t dim : tensor->shape) {
      overflow = overflow || __builtin_mul_overflow(elements, dim, &elements);
    }
    if (overflow || elements > static_cast<int64_t>(storage.size()) / size) {
      return DataLossError(path_, ": ", tensor->name, ": ",
                           DescribeTensor(tensor->dtype, tensor->shape), " at element ", offset,
                           " is not within its storage of ", storage.size(), " bytes");
    }
    tensor->data =
        storage.substr(static_cast<size_t>(offset * size), static_cast<size_t>((last + 1) * size));
    return OkStatus();
  }

  const Pickle& pickle_;
  const std::string prefix_, path_;
  std::map<std::string, std::string_view> data_;
};

// The folder inside the zip that all entries lie in.
StatusOr<std::string> FindPrefix(const ZipArchive& zip, const std::string& path) {
  for (const ZipEntry& entry : zip.entries()) {
    const size_t end = sizeof(kPickleEnd) - 1;
    if (entry.name.size() > end && entry.name.substr(entry.name.size() - end) == kPickleEnd) {
      return entry.name.substr(0, entry.name.size() - end);
    }
  }
  return InvalidArgumentError(path, ": a zip file, but none of torch.save: no data.pkl in it");
}

}  // namespace

void CopyRow(const StridedTensor& tensor, int64_t row, char* to) {
  CRIA_CHECK(0 <= row && row < tensor.rows(), "row ", row, " of ", tensor.name);
  const auto size = static_cast<size_t>(StDtypeBits(tensor.dtype) / 8);
  const char* from = tensor.data.data() + static_cast<size_t>(row * tensor.strides[0]) * size;
  const auto columns = static_cast<size_t>(tensor.columns());
  if (tensor.shape.size() == 1 || tensor.strides[1] == 1) {
    std::memcpy(to, from, columns * size);
    return;
  }
  const auto step = static_cast<size_t>(tensor.strides[1]) * size;
  for (size_t i = 0; i < columns; ++i) std::memcpy(to + i * size, from + i * step, size);
}

StatusOr<TorchFile> TorchFile::Open(const std::string& path) {
  TorchFile file;
  file.path_ = path;
  CRIA_ASSIGN_OR_RETURN(file.file_, MappedFile::Open(path));
  CRIA_ASSIGN_OR_RETURN(const ZipArchive zip, ZipArchive::Parse(file.file_.bytes(), path));
  CRIA_ASSIGN_OR_RETURN(const std::string prefix, FindPrefix(zip, path));
  const ZipEntry* order = zip.Find(prefix + "/byteorder");
  if (order != nullptr && order->data != "little") {
    return InvalidArgumentError(path, ": byte order is not little");
  }
  CRIA_ASSIGN_OR_RETURN(const Pickle pickle,
                        Pickle::Parse(zip.Find(prefix + kPickleEnd)->data,
                                      StrCat(path, ": data.pkl"), AllowedGlobals()));
  CRIA_ASSIGN_OR_RETURN(file.tensors_, DictReader(zip, pickle, prefix, path).Read());
  return file;
}

}  // namespace cria::model

// model/io/safetensors.h, and its elements as fp32.

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "model/io/safetensors.h"
#include "model/io/weight_source.h"
#include "tests/fuzz/fuzz_target.h"

namespace cria::fuzz {
namespace {

using model::SafetensorsFile;
using model::StDtype;
using model::TensorInfo;

void Use(const SafetensorsFile& file) {
  uint64_t end = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    CRIA_CHECK_EQ(tensor.begin, end);
    end = tensor.end;
    CRIA_CHECK(file.Find(tensor.name) == &tensor, tensor.name);
    const std::string_view data = file.Data(tensor);
    CRIA_CHECK_EQ(data.size(), tensor.end - tensor.begin);
    Touch(data);
    int64_t elements = 1;
    for (const int64_t dim : tensor.shape)
      CRIA_CHECK(!__builtin_mul_overflow(elements, dim, &elements));
    CRIA_CHECK_EQ(
        static_cast<uint64_t>(elements) * static_cast<uint64_t>(model::StDtypeBits(tensor.dtype)),
        8 * data.size());
    // In pieces, as a reader of rows does.
    float piece[64];
    const int64_t bytes = std::max(1, model::StDtypeBits(tensor.dtype) / 8);
    for (int64_t i = 0; i < elements; i += 64) {
      const int64_t n = std::min<int64_t>(64, elements - i);
      if (!ConvertElements(tensor.dtype, data.data() + i * bytes, n, StDtype::kF32, piece).ok())
        break;
    }
  }
  for (const auto& [key, value] : file.metadata()) CRIA_CHECK(key.size() + value.size() > 0);
}

Status Read(std::string_view input) {
  const std::string path = ScratchFile("x.safetensors", input);
  const StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return NamesPlace(file.status(), path);
  Use(*file);
  return OkStatus();
}

std::string Written(const std::vector<model::TensorToWrite>& tensors,
                    const std::map<std::string, std::string>& metadata) {
  const std::string path = JoinPath(ScratchDir(), "seed.safetensors");
  CRIA_CHECK(WriteSafetensors(path, tensors, metadata).ok());
  return *ReadFile(path);
}

std::vector<std::string> Seeds() {
  const std::string data(96, '\x3c');
  const std::string_view d = data;
  return {
      Written({}, {}),
      Written({{"model.norm.weight", StDtype::kF32, {4}, d.substr(0, 16)},
               {"lm_head.weight", StDtype::kBF16, {3, 4}, d.substr(0, 24)},
               {"scalar", StDtype::kF64, {}, d.substr(0, 8)},
               {"none", StDtype::kI64, {0, 7}, {}}},
              {{"format", "pt"}}),
      Written({{"a", StDtype::kF8E4M3, {8}, d.substr(0, 8)},
               {"b", StDtype::kF8E5M2, {2, 4}, d.substr(0, 8)},
               {"c", StDtype::kF4, {4}, d.substr(0, 2)},
               {"d", StDtype::kF6E2M3, {4}, d.substr(0, 3)},
               {"e", StDtype::kF16, {2}, d.substr(0, 4)},
               {"f", StDtype::kBool, {1}, d.substr(0, 1)}},
              {}),
  };
}

std::string WithHeader(std::string_view header, size_t data_bytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return StrCat(bytes, header, std::string(data_bytes, '\0'));
}

std::vector<std::string> Regressions() {
  return {
      // Shapes whose product wraps to the right size.
      WithHeader(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      WithHeader(R"({"a":{"dtype":"F32","shape":[4611686018427387904,1],"data_offsets":[0,0]}})",
                 0),
      WithHeader(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,18446744073709551615]}})", 0),
      // A header that claims 2^63 bytes, and one of brackets alone.
      std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10),
      WithHeader(std::string(20'000, '['), 0),
      WithHeader("{\"a\":" + std::string(20'000, '['), 0),
  };
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {
      .name = "safetensors", .read = Read, .seeds = Seeds, .regressions = Regressions};
  return target;
}

}  // namespace cria::fuzz

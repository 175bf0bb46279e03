#include "tests/fuzz/torch_bytes.h"

#include <string_view>

#include "base/str.h"

namespace cria::fuzz {
namespace {

// Little-endian, `width` bytes.
std::string Number(uint64_t value, int width) {
  std::string out;
  for (int i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

// Opcodes of pickle's protocol 2.
std::string Text(std::string_view text) { return StrCat("X", Number(text.size(), 4), text); }
std::string Int(int64_t value) { return StrCat("J", Number(static_cast<uint64_t>(value), 4)); }
std::string Tuple(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) out += Int(value);
  return out + "t";
}

std::string PickleOf(const std::vector<TorchTensor>& tensors) {
  std::string out = "\x80\x02}(";
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TorchTensor& tensor = tensors[i];
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    if (strides.size() > 1) strides[0] = tensor.shape[1];
    const auto elements = static_cast<int64_t>(tensor.bytes.size() / 2);
    out += StrCat(Text(tensor.name), "ctorch._utils\n_rebuild_tensor_v2\n(");
    out += StrCat("(", Text("storage"), "ctorch\nBFloat16Storage\n", Text(StrCat(i)), Text("cpu"),
                  Int(elements), "tQ");
    out += StrCat(Int(0), Tuple(tensor.shape), Tuple(strides), "\x89",
                  "ccollections\nOrderedDict\n)RtR");
  }
  return out + "u.";
}

struct Entry {
  std::string name, data;
};

// Stored entries without checksums, then the directory.
std::string ZipOf(const std::vector<Entry>& entries) {
  std::string out, directory;
  for (const Entry& entry : entries) {
    const std::string common =
        StrCat(Number(0, 2), Number(0, 2), Number(0, 4), Number(0, 4), Number(entry.data.size(), 4),
               Number(entry.data.size(), 4), Number(entry.name.size(), 2), Number(0, 2));
    directory +=
        StrCat("PK\x01\x02", Number(0, 2), Number(0, 2), common, Number(0, 2), Number(0, 2),
               Number(0, 2), Number(0, 4), Number(out.size(), 4), entry.name);
    out += StrCat("PK\x03\x04", Number(0, 2), common, entry.name, entry.data);
  }
  const std::string count = Number(entries.size(), 2);
  return StrCat(out, directory, "PK\x05\x06", Number(0, 4), count, count,
                Number(directory.size(), 4), Number(out.size(), 4), Number(0, 2));
}

}  // namespace

std::string TorchBytes(const std::vector<TorchTensor>& tensors) {
  std::vector<Entry> entries = {{"consolidated/data.pkl", PickleOf(tensors)},
                                {"consolidated/byteorder", "little"},
                                {"consolidated/version", "3\n"}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    entries.push_back({StrCat("consolidated/data/", i), tensors[i].bytes});
  }
  return ZipOf(entries);
}

}  // namespace cria::fuzz

#include "tests/unit/model/io/torch_builder.h"

#include "base/check.h"
#include "base/str.h"

namespace cria::model {
namespace {

std::string Little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return out;
}

const char* StorageName(StDtype dtype) {
  switch (dtype) {
    case StDtype::kF32:
      return "FloatStorage";
    case StDtype::kF16:
      return "HalfStorage";
    case StDtype::kBF16:
      return "BFloat16Storage";
    default:
      CRIA_CHECK(false, "no storage of ", StDtypeName(dtype));
  }
}

std::string Sizes(const std::vector<int64_t>& sizes) {
  std::vector<std::string> items;
  for (const int64_t size : sizes) items.push_back(PickleInteger(size));
  return PickleTuple(items);
}

}  // namespace

std::string BuildZip(const std::vector<std::pair<std::string, std::string>>& entries, bool zip64) {
  std::string out, directory;
  for (const auto& [name, data] : entries) {
    const uint64_t offset = out.size(), size = data.size();
    const std::string sizes =
        zip64 ? Little(0xffffffff, 4) + Little(0xffffffff, 4) : Little(size, 4) + Little(size, 4);
    const std::string extra =
        zip64 ? Little(1, 2) + Little(24, 2) + Little(size, 8) + Little(size, 8) + Little(offset, 8)
              : "";
    // Local header: version, flags, method, time, date, crc, sizes; padding in its extra field.
    const std::string padding = Little(0x4246, 2) + Little(3, 2) + "ZZZ";
    out += Little(0x04034b50, 4) + Little(0, 2) + Little(0, 2) + Little(0, 2) + Little(0, 8) +
           sizes + Little(name.size(), 2) + Little(padding.size(), 2) + name + padding + data;
    directory += Little(0x02014b50, 4) + Little(0, 4) + Little(0, 2) + Little(0, 2) + Little(0, 8) +
                 sizes + Little(name.size(), 2) + Little(extra.size(), 2) + Little(0, 2) +
                 Little(0, 8) + Little(zip64 ? 0xffffffff : offset, 4) + name + extra;
  }
  const uint64_t start = out.size();
  out += directory;
  if (zip64) {
    const uint64_t end64 = out.size();
    out += Little(0x06064b50, 4) + Little(44, 8) + Little(0, 4) + Little(0, 8) +
           Little(entries.size(), 8) + Little(entries.size(), 8) + Little(directory.size(), 8) +
           Little(start, 8);
    out += Little(0x07064b50, 4) + Little(0, 4) + Little(end64, 8) + Little(1, 4);
  }
  const uint64_t count = zip64 ? 0xffff : entries.size();
  return out + Little(0x06054b50, 4) + Little(0, 4) + Little(count, 2) + Little(count, 2) +
         Little(zip64 ? 0xffffffff : directory.size(), 4) + Little(zip64 ? 0xffffffff : start, 4) +
         Little(0, 2);
}

std::string PickleText(const std::string& text) { return "X" + Little(text.size(), 4) + text; }

std::string PickleInteger(int64_t value) {
  if (value >= 0 && value < 256) return "K" + Little(static_cast<uint64_t>(value), 1);
  if (value >= 0 && value < 65536) return "M" + Little(static_cast<uint64_t>(value), 2);
  return "\x8a\x08" + Little(static_cast<uint64_t>(value), 8);
}

std::string PickleGlobal(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

std::string PickleTuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const std::string& item : items) out += item;
  return out + "t";
}

void TorchBuilder::Add(const std::string& name, StDtype dtype, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& strides, const std::string& bytes,
                       int64_t offset) {
  const std::string key = StrCat(storages_.size());
  storages_.push_back(bytes);
  const std::string storage =
      PickleTuple({PickleText("storage"), PickleGlobal("torch", StorageName(dtype)),
                   PickleText(key), PickleText("cpu"),
                   PickleInteger(static_cast<int64_t>(bytes.size()) * 8 / StDtypeBits(dtype))}) +
      "Q";
  const std::string hooks = PickleGlobal("collections", "OrderedDict") + ")R";
  AddRaw(name, PickleGlobal("torch._utils", "_rebuild_tensor_v2") +
                   PickleTuple({storage, PickleInteger(offset), Sizes(shape), Sizes(strides),
                                "\x89", hooks}) +
                   "R");
}

void TorchBuilder::AddRaw(const std::string& name, const std::string& pickle) {
  items_.emplace_back(name, pickle);
}

std::string TorchBuilder::Pickle() const {
  std::string out = std::string("\x80\x02", 2) + "}q" + Little(0, 1) + "(";
  for (const auto& [name, pickle] : items_) out += PickleText(name) + pickle;
  return out + "u.";
}

std::string TorchBuilder::Build(bool zip64) const {
  std::vector<std::pair<std::string, std::string>> entries = {{"archive/data.pkl", Pickle()},
                                                              {"archive/byteorder", "little"}};
  for (size_t i = 0; i < storages_.size(); ++i) {
    entries.emplace_back(StrCat("archive/data/", i), storages_[i]);
  }
  entries.emplace_back("archive/version", "3\n");
  return BuildZip(entries, zip64);
}

}  // namespace cria::model

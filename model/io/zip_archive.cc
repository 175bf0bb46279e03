#include "model/io/zip_archive.h"

#include <algorithm>
#include <cstdint>

namespace cria::model {
namespace {

constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr size_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr size_t kCentralBytes = 46, kLocalBytes = 30;
constexpr size_t kMaxComment = 65'535;
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kIn64 = 0xffffffff;  // the value stands in the zip64 extra field

// Little-endian, at an offset that the caller has checked.
template <typename T>
T At(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(bytes[offset + i]));
  }
  return value;
}

bool HasSignature(std::string_view bytes, uint64_t offset, size_t size, uint32_t signature) {
  return offset <= bytes.size() && bytes.size() - offset >= size &&
         At<uint32_t>(bytes, offset) == signature;
}

struct Directory {
  uint64_t offset = 0, bytes = 0, num_entries = 0;
};

// The end record is the last thing in the file but a comment of its own.
StatusOr<size_t> FindEnd(std::string_view bytes, const std::string& path) {
  if (bytes.size() >= kEndBytes) {
    const size_t last = bytes.size() - kEndBytes;
    const size_t first = last > kMaxComment ? last - kMaxComment : 0;
    for (size_t at = last + 1; at-- > first;) {
      if (HasSignature(bytes, at, kEndBytes, kEndSignature) &&
          At<uint16_t>(bytes, at + 20) == bytes.size() - at - kEndBytes) {
        return at;
      }
    }
  }
  return InvalidArgumentError(path, ": no zip file, or one that was cut off: no end record in its ",
                              bytes.size(), " bytes");
}

StatusOr<Directory> FindDirectory(std::string_view bytes, const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const size_t end, FindEnd(bytes, path));
  if (At<uint16_t>(bytes, end + 4) != At<uint16_t>(bytes, end + 6)) {
    return InvalidArgumentError(path, ": a zip file over several disks");
  }
  Directory directory = {At<uint32_t>(bytes, end + 16), At<uint32_t>(bytes, end + 12),
                         At<uint16_t>(bytes, end + 10)};
  if (end >= kLocator64Bytes &&
      HasSignature(bytes, end - kLocator64Bytes, kLocator64Bytes, kLocator64Signature)) {
    const auto at = At<uint64_t>(bytes, end - kLocator64Bytes + 8);
    if (!HasSignature(bytes, at, kEnd64Bytes, kEnd64Signature)) {
      return DataLossError(path, ": no zip64 end record at byte ", at);
    }
    directory = {At<uint64_t>(bytes, at + 48), At<uint64_t>(bytes, at + 40),
                 At<uint64_t>(bytes, at + 32)};
  }
  if (directory.offset > bytes.size() || directory.bytes > bytes.size() - directory.offset) {
    return DataLossError(path, ": the zip directory is [", directory.offset, ", +", directory.bytes,
                         ") of ", bytes.size(), " bytes");
  }
  if (directory.num_entries > directory.bytes / kCentralBytes) {
    return DataLossError(path, ": ", directory.num_entries, " zip entries in a directory of ",
                         directory.bytes, " bytes");
  }
  return directory;
}

// Sizes and offset of an entry; where the record has no room for one, its zip64 field has it.
struct Extent {
  uint64_t raw = 0, stored = 0, offset = 0;
};

bool ReadZip64(std::string_view extra, Extent* extent) {
  while (extra.size() >= 4) {
    const auto id = At<uint16_t>(extra, 0);
    const size_t size = At<uint16_t>(extra, 2);
    if (size > extra.size() - 4) return false;
    std::string_view field = extra.substr(4, size);
    extra.remove_prefix(4 + size);
    if (id != kZip64Extra) continue;
    for (uint64_t* value : {&extent->raw, &extent->stored, &extent->offset}) {
      if (*value != kIn64) continue;
      if (field.size() < 8) return false;
      *value = At<uint64_t>(field, 0);
      field.remove_prefix(8);
    }
    return true;
  }
  return extent->raw != kIn64 && extent->stored != kIn64 && extent->offset != kIn64;
}

StatusOr<std::string_view> FindData(std::string_view bytes, const Extent& extent,
                                    const std::string& where) {
  if (!HasSignature(bytes, extent.offset, kLocalBytes, kLocalSignature)) {
    return DataLossError(where, ": no local header at byte ", extent.offset);
  }
  const uint64_t header = kLocalBytes + At<uint16_t>(bytes, extent.offset + 26) +
                          At<uint16_t>(bytes, extent.offset + 28);
  const uint64_t left = bytes.size() - extent.offset;
  if (header > left || extent.raw > left - header) {
    return DataLossError(where, ": ", extent.raw, " bytes at ", extent.offset, " of ",
                         bytes.size());
  }
  return bytes.substr(extent.offset + header, extent.raw);
}

// A name from a file, fit for a message.
std::string Shown(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 120)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out;
}

}  // namespace

StatusOr<ZipArchive> ZipArchive::Parse(std::string_view bytes, const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(bytes, path));
  ZipArchive archive;
  archive.entries_.reserve(directory.num_entries);
  std::string_view left = bytes.substr(directory.offset, directory.bytes);
  for (uint64_t i = 0; i < directory.num_entries; ++i) {
    if (!HasSignature(left, 0, kCentralBytes, kCentralSignature)) {
      return DataLossError(path, ": zip entry ", i, " of ", directory.num_entries, " is damaged");
    }
    const size_t name_bytes = At<uint16_t>(left, 28), extra_bytes = At<uint16_t>(left, 30);
    const size_t record = kCentralBytes + name_bytes + extra_bytes + At<uint16_t>(left, 32);
    if (record > left.size()) {
      return DataLossError(path, ": zip entry ", i, " of ", directory.num_entries,
                           " goes beyond the directory");
    }
    ZipEntry entry{std::string(left.substr(kCentralBytes, name_bytes)), {}};
    const std::string where = StrCat(path, ": ", Shown(entry.name));
    if (At<uint16_t>(left, 8) & 1) return InvalidArgumentError(where, " is encrypted");
    if (const auto method = At<uint16_t>(left, 10); method != 0) {
      return InvalidArgumentError(where, " is compressed (method ", method,
                                  "); torch.save stores its entries");
    }
    Extent extent = {At<uint32_t>(left, 24), At<uint32_t>(left, 20), At<uint32_t>(left, 42)};
    if (!ReadZip64(left.substr(kCentralBytes + name_bytes, extra_bytes), &extent)) {
      return DataLossError(where, ": its zip64 field is damaged");
    }
    if (extent.raw != extent.stored) {
      return DataLossError(where, ": ", extent.stored, " bytes stored for ", extent.raw);
    }
    CRIA_ASSIGN_OR_RETURN(entry.data, FindData(bytes, extent, where));
    archive.entries_.push_back(std::move(entry));
    left.remove_prefix(record);
  }
  return archive;
}

const ZipEntry* ZipArchive::Find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const ZipEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace cria::model

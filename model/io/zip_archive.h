// The entries of a zip file in memory, for files that PyTorch saves: stored, never compressed.
//
//   CRIA_ASSIGN_OR_RETURN(const ZipArchive zip, ZipArchive::Parse(mapped.bytes(), path));
//   for (const ZipEntry& entry : zip.entries()) { entry.name, entry.data }
//
// Understood: the end record with a comment, zip64 (sizes, offsets and counts over 32 bits),
// stored entries. Refused: compression, encryption, several disks. The central directory is what
// counts; of a local header the lengths are used. Checksums are not compared: a weight that was
// changed is a legal weight.
// Every file is taken as hostile: all offsets and lengths are checked against the bytes there are,
// and memory stays within a small multiple of the directory. Thread-safe after Parse.
// Source: PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3.

#ifndef CRIA_MODEL_IO_ZIP_ARCHIVE_H_
#define CRIA_MODEL_IO_ZIP_ARCHIVE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria::model {

struct ZipEntry {
  std::string name;
  std::string_view data;  // a view into the archive's bytes
};

class ZipArchive {
 public:
  // `bytes` outlives the archive; `path` is for messages. InvalidArgument when it is no zip file or
  // uses what is refused, DataLoss when it is damaged, with the entry and the offset.
  static StatusOr<ZipArchive> Parse(std::string_view bytes, const std::string& path);

  // In the order of the directory. A name may be there twice.
  const std::vector<ZipEntry>& entries() const { return entries_; }

  // The first of that name, or null. Linear.
  const ZipEntry* Find(std::string_view name) const;

 private:
  std::vector<ZipEntry> entries_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_ZIP_ARCHIVE_H_

// The bytes of an input file, from its start to its end, decompressed on the way when it is .zst.
//
//   CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, OpenBytes("corpus.txt.zst"));
//   for (;;) {
//     CRIA_ASSIGN_OR_RETURN(const size_t count, source->Read(buffer));
//     if (count == 0) break;
//     Use({buffer.data(), count});
//   }
//
// Called by trainer/data/document_source.h. A file that starts with zstd's magic number, or whose
// name ends in .zst, is decompressed as a stream: any number of frames, a window of at most 128 MiB
// (`zstd --ultra` without --long). Memory: two buffers of 128 KiB and that window.
// Errors: NotFound; DataLoss, naming file and byte, for a damaged or truncated .zst.
// Single-threaded.

#ifndef CRIA_TRAINER_DATA_BYTE_SOURCE_H_
#define CRIA_TRAINER_DATA_BYTE_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace cria::trainer {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills the front of `out` and returns how many bytes that was; 0 at the end.
  virtual StatusOr<size_t> Read(std::span<char> out) = 0;

  // Bytes taken from the file so far, as they lie on the disk: for a progress bar.
  virtual uint64_t input_bytes() const = 0;
};

// Opens a file, or whatever else can be read once from start to end (a pipe).
StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const std::string& path);

// Copies all of the open descriptor `from` into the new file `path`, as it comes. Ends with
// Cancelled soon after `*stop` turns true (null: never), also while no data comes.
Status SpoolToFile(int from, const std::string& path, const std::atomic<bool>* stop);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_BYTE_SOURCE_H_

// The documents of a corpus, one after another, in parts of bounded size.
//
// Called by trainer/data/prepare.h.
//
//   CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<DocumentSource> source,
//                         OpenDocuments({.inputs = {"books/", "wiki.jsonl.zst"}}));
//   TextPart part;
//   for (;;) {
//     CRIA_ASSIGN_OR_RETURN(const bool has_part, source->Next(&part));
//     if (!has_part) break;
//     Use(part);  // part.document 0, 0, 0, 1, 2, 2, ...
//   }
//
// Inputs, in the given order: text files, JSONL files (.jsonl, .ndjson), either of them compressed
// (.zst), folders (every regular file below, sorted by name at each level; names with a leading dot
// and links to folders left out), "-" for standard input. A document is
//   - a text file, or what stands between two separators in it when `split_on` is given;
//   - a line of a JSONL file: the string under the key `field`.
// Documents without a byte are left out and not counted.
//
// Memory is flat whatever the input's size: a document longer than `part_bytes` comes in several
// parts, cut where the tokens stay the same (trainer/data/text_cut.h); only a JSONL line must fit
// in memory as a whole (kJsonLineBytesMax). Standard input and pipes are copied to a file in
// `spool_dir` first, because a corpus is read twice; that file goes away with the source.
//
// Errors name the file and, for JSONL, the line: NotFound; DataLoss for damaged .zst or JSON;
// InvalidArgument for a missing field, and for a NUL byte (such a file is no text) unless
// `allow_binary`. Bytes that are not UTF-8 pass: the tokenizer is byte-level.
// Single-threaded. Cost: about 1 GB/s for text, 0.5 GB/s for .zst and JSONL.

#ifndef CRIA_TRAINER_DATA_DOCUMENT_SOURCE_H_
#define CRIA_TRAINER_DATA_DOCUMENT_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

// The longest JSONL line, uncompressed.
inline constexpr size_t kJsonLineBytesMax = size_t{256} << 20;

// A document, or a piece of a long one.
struct TextPart {
  uint64_t document = 0;  // index in the corpus
  bool is_first = false;  // its document starts here
  bool is_last = false;   // its document ends here
  std::string text = {};  // empty only when the document's end is all there is to say
};

class DocumentSource {
 public:
  virtual ~DocumentSource() = default;

  // The next part; false at the end. After an error, only Rewind may follow.
  virtual StatusOr<bool> Next(TextPart* part) = 0;

  // Back to the first document. The same parts follow.
  virtual void Rewind() = 0;

  // Bytes of the input used since the start, and their total, as they lie on the disk.
  virtual uint64_t input_bytes() const = 0;
  virtual uint64_t input_bytes_total() const = 0;
};

enum class TextFormat {
  kAuto,  // by name: .jsonl and .ndjson, with or without .zst, are JSONL; all else is text
  kText,
  kJsonl,
};

struct SourceOptions {
  std::vector<std::string> inputs = {};
  TextFormat format = TextFormat::kAuto;
  std::string field = "text";
  std::string split_on = {};  // empty: a text file is one document
  bool allow_binary = false;
  size_t part_bytes = size_t{256} << 10;
  std::string spool_dir = ".";              // also: left out when a folder is walked
  const std::atomic<bool>* stop = nullptr;  // ends the wait for standard input
};

// One file of a corpus.
struct InputFile {
  std::string path = {};  // what is opened
  std::string name = {};  // what messages say
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  bool is_spooled = false;  // a copy of a pipe, to be removed
};

// The files behind `inputs`: folders walked, pipes spooled. NotFound when an input doesn't exist,
// InvalidArgument when a folder holds no file.
StatusOr<std::vector<InputFile>> ListInputFiles(const SourceOptions& options);

// The documents of `files`; spooled ones are removed when the source is destroyed.
std::unique_ptr<DocumentSource> OpenDocuments(const SourceOptions& options,
                                              std::vector<InputFile> files);

// Both steps at once.
StatusOr<std::unique_ptr<DocumentSource>> OpenDocuments(const SourceOptions& options);

// Documents that are in memory already.
std::unique_ptr<DocumentSource> DocumentsInMemory(std::vector<std::string> documents);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_DOCUMENT_SOURCE_H_

// Documents from files (trainer/data/document_source.h): JSONL, text cut at separators, zstd.
//
// The first byte of an input: 0: JSONL, 1: text, 2: JSONL in zstd.

#include <zstd.h>

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/document_source.h"

namespace cria::fuzz {
namespace {

using trainer::DocumentSource;
using trainer::TextPart;

Status Read(std::string_view input) {
  const FileChoice choice = ChooseFile(input, 3);
  constexpr const char* kNames[] = {"x.jsonl", "x.txt", "x.jsonl.zst"};
  const std::string path = ScratchFile(kNames[choice.index], choice.bytes);
  trainer::SourceOptions options;
  options.inputs = {path};
  options.split_on = "\n\n";
  options.part_bytes = 1000;
  options.spool_dir = ScratchDir();
  const auto source = OpenDocuments(options);
  if (!source.ok()) return NamesPlace(source.status(), path);
  // Twice: a corpus is read again after Rewind, and must be the same.
  uint64_t bytes[2] = {0, 0};
  for (uint64_t& sum : bytes) {
    TextPart part;
    uint64_t document = 0;
    bool is_open = false;
    for (;;) {
      const StatusOr<bool> more = (*source)->Next(&part);
      if (!more.ok()) return NamesPlace(more.status(), path);
      if (!*more) break;
      CRIA_CHECK_EQ(part.document, document);
      CRIA_CHECK_EQ(part.is_first, !is_open);
      CRIA_CHECK(part.text.size() <= options.part_bytes);
      Touch(part.text);
      sum += part.text.size();
      is_open = !part.is_last;
      if (part.is_last) ++document;
    }
    CRIA_CHECK(!is_open);
    (*source)->Rewind();
  }
  CRIA_CHECK_EQ(bytes[0], bytes[1]);
  return OkStatus();
}

std::string Compressed(std::string_view bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3);
  CRIA_CHECK(ZSTD_isError(size) == 0);
  out.resize(size);
  return out;
}

std::vector<std::string> Seeds() {
  const std::string jsonl =
      "{\"text\": \"one \\u00e9\\n\\n\", \"id\": 1}\n\n{\"meta\": {\"a\": [1, 2]}, \"text\": "
      "\"two\"}\n"
      "{\"text\": \"\"}\n{\"text\": \"the last has no newline \\ud83d\\ude00\"}";
  return {InputFor(0, jsonl),
          InputFor(1, StrCat("one\n\ntwo\n\n\n\nthree ", std::string(3000, 'x'), " end")),
          InputFor(2, Compressed(jsonl)),
          InputFor(2, StrCat(Compressed(jsonl), Compressed("\n{\"text\": \"frame two\"}")))};
}

std::vector<std::string> Regressions() {
  return {InputFor(0, std::string(100'000, '[')), InputFor(0, R"({"text": "half a pair \ud83d"})"),
          InputFor(0, R"({"text": "\u0000"})"),
          // A frame that says that it needs a window of terabytes.
          InputFor(2, std::string("\x28\xb5\x2f\xfd\x00\xff\x00\x00\x00", 9))};
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {.name = "documents",
                                .read = Read,
                                .seeds = Seeds,
                                .regressions = Regressions,
                                // A zstd frame may ask for a window of 128 MiB (byte_source.h),
                                // whatever its size.
                                .memory_base = size_t{140} << 20};
  return target;
}

}  // namespace cria::fuzz

// GGUF (model/io/gguf.h), the Llama in it and its tokenizer (trainer/models).

#include "base/check.h"
#include "model/io/gguf.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/seed_model.h"

namespace cria::fuzz {
namespace {

void UseFile(const model::GgufFile& file) {
  for (const model::GgufEntry& entry : file.entries()) {
    CRIA_CHECK(file.FindEntry(entry.key) == &entry);
    Touch(entry.payload);
    (void)file.Integer(entry.key);
    (void)file.Real(entry.key);
    (void)file.Bool(entry.key);
    (void)file.String(entry.key);
    (void)file.Strings(entry.key);
    (void)file.Integers(entry.key);
  }
  for (const model::GgufTensor& tensor : file.tensors()) {
    CRIA_CHECK(file.Find(tensor.name) == &tensor);
    CRIA_CHECK_EQ(file.Data(tensor).size(), tensor.bytes);
    Touch(file.Data(tensor));
  }
}

Status Read(std::string_view input) {
  const std::string path = ScratchFile("x.gguf", input);
  const StatusOr<model::GgufFile> file = model::GgufFile::Open(path);
  if (file.ok()) UseFile(*file);
  const StatusOr<trainer::ModelFiles> files = trainer::OpenModel(path);
  if (!files.ok()) return NamesPlace(files.status(), path);
  CRIA_CHECK(file.ok(), Message(file.status()));
  UseModel(*files);
  return OkStatus();
}

std::vector<std::string> Seeds() { return {GgufSeed(false), GgufSeed(true)}; }

}  // namespace

const Target& TheTarget() {
  static const Target target = {
      .name = "gguf", .read = Read, .seeds = Seeds, .memory_base = size_t{4} << 20};
  return target;
}

}  // namespace cria::fuzz

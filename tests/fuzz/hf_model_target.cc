// A folder of Hugging Face's format through OpenModel: config.json, generation_config.json,
// tokenizer.json, tokenizer_config.json, the index of shards, and the shards themselves.
//
// The first byte of an input chooses the file that the rest replaces, by name.

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/seed_model.h"

namespace cria::fuzz {
namespace {

Status Read(std::string_view input) { return ReadFolder(HfSeed(), "hf", input); }
std::vector<std::string> Seeds() { return FolderSeeds(HfSeed()); }

}  // namespace

const Target& TheTarget() {
  static const Target target = {.name = "hf_model",
                                .read = Read,
                                .seeds = Seeds,
                                // The other files of the folder, whatever the input's size.
                                .memory_base = size_t{4} << 20};
  return target;
}

}  // namespace cria::fuzz

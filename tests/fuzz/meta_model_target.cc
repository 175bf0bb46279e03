// A folder of Meta's layout through OpenModel: params.json, consolidated.00.pth (a zip with a
// pickle), tokenizer.model.
//
// The first byte of an input chooses the file that the rest replaces, by name.

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/seed_model.h"

namespace cria::fuzz {
namespace {

Status Read(std::string_view input) { return ReadFolder(MetaSeed(), "meta", input); }
std::vector<std::string> Seeds() { return FolderSeeds(MetaSeed()); }

}  // namespace

const Target& TheTarget() {
  static const Target target = {
      .name = "meta_model", .read = Read, .seeds = Seeds, .memory_base = size_t{4} << 20};
  return target;
}

}  // namespace cria::fuzz

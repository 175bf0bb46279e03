// A tiny Llama in each format that we read, as valid seeds for the fuzz targets; and the use of all
// that a reader handed out.
//
// One layer of 8, two heads over one, a vocabulary of 262 with its tokenizer. Same bytes each time.
// Single-threaded.

#ifndef CRIA_TESTS_FUZZ_SEED_MODEL_H_
#define CRIA_TESTS_FUZZ_SEED_MODEL_H_

#include <map>
#include <string>

#include "model/io/weight_source.h"
#include "trainer/models/model_files.h"

namespace cria::fuzz {

// Hugging Face's folder by file name: config.json, two shards and their index, tokenizer.json,
// tokenizer_config.json, generation_config.json.
const std::map<std::string, std::string>& HfSeed();

// The same model as GGUF: matrices as stored (bf16), or Q8_0 and F16.
std::string GgufSeed(bool quantised);

// Meta's folder: params.json, consolidated.00.pth, tokenizer.model.
const std::map<std::string, std::string>& MetaSeed();

// A tokenizer.model: each byte, and a few longer tokens.
std::string TiktokenSeed();

// Reads every row of every weight as fp32, every stored row in its own type; encodes and decodes.
// CHECKs what must hold of an accepted model.
void UseWeights(const model::WeightSource& weights);
void UseTokenizer(const trainer::Tokenizer& tokenizer);
void UseModel(const trainer::ModelFiles& files);

// Replaces one file of a folder in ScratchDir(), the others as in `seed`; returns the folder.
std::string FolderWith(const std::map<std::string, std::string>& seed, const std::string& dir,
                       std::string_view name, std::string_view bytes);

// A target's `read` and `seeds` over such a folder: the input's first byte chooses the file.
Status ReadFolder(const std::map<std::string, std::string>& seed, const std::string& dir,
                  std::string_view input);
std::vector<std::string> FolderSeeds(const std::map<std::string, std::string>& seed);

}  // namespace cria::fuzz

#endif  // CRIA_TESTS_FUZZ_SEED_MODEL_H_

// A MarkovModel as a folder of Hugging Face's format, for commands that open one.
//
//   const std::string dir = WriteMarkovFolder("model", AlphabetLogit, {});
//   RunProcess({"trainer/generate/generate", dir, "--prompt", "abc"});
//
// Single-threaded.

#ifndef CRIA_TESTS_UNIT_TRAINER_GENERATE_MARKOV_FOLDER_H_
#define CRIA_TESTS_UNIT_TRAINER_GENERATE_MARKOV_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>

namespace cria::trainer {

struct MarkovFolderOptions {
  int64_t max_positions = 64;
  bool has_tokenizer = true;
  std::string chat_template = {};  // empty: none
};

// A new folder under TEST_TMPDIR: config.json, model.safetensors, tokenizer.json (ByteTokenizer),
// tokenizer_config.json. Its end-of-sequence token is kByteEos.
std::string WriteMarkovFolder(const std::string& name,
                              const std::function<float(int32_t from, int32_t to)>& logit,
                              const MarkovFolderOptions& options);

}  // namespace cria::trainer

#endif  // CRIA_TESTS_UNIT_TRAINER_GENERATE_MARKOV_FOLDER_H_

#include "trainer/data/data_tokenizer.h"

#include "base/file.h"

namespace cria::trainer {

StatusOr<Tokenizer> LoadDataTokenizer(const std::string& dir, const Manifest& manifest) {
  const std::string path = JoinPath(dir, manifest.tokenizer_file);
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(path));
  const std::string fingerprint = tokenizer.Fingerprint();
  if (fingerprint != manifest.tokenizer_fingerprint ||
      tokenizer.vocab_size() != manifest.vocab_size) {
    return DataLossError("open ", path, ": fingerprint ", fingerprint, ", ", tokenizer.vocab_size(),
                         " tokens; the data was encoded with ", manifest.tokenizer_fingerprint,
                         ", ", manifest.vocab_size, " tokens");
  }
  return tokenizer;
}

}  // namespace cria::trainer

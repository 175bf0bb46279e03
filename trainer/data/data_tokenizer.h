// The tokenizer of a prepared data folder, proved to be the one that encoded it.
//
//   CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadDataTokenizer(dir, dataset.manifest()));
//
// Called by the trainer (samples of text) and by `cria data inspect`. Thread-safe.

#ifndef CRIA_TRAINER_DATA_DATA_TOKENIZER_H_
#define CRIA_TRAINER_DATA_DATA_TOKENIZER_H_

#include <string>

#include "base/status.h"
#include "trainer/data/manifest.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

// DataLoss when the file's fingerprint or size is not what the manifest says; else as
// Tokenizer::Load.
StatusOr<Tokenizer> LoadDataTokenizer(const std::string& dir, const Manifest& manifest);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_DATA_TOKENIZER_H_

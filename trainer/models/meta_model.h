// Models in Meta's layout: a folder with params.json, consolidated.NN.pth and tokenizer.model.
//
//   CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenMetaModel("Llama3.2-1B", {}));
//
// Sizes: model/io/meta_params.h; weights: model/io/meta_source.h. The tokenizer is tiktoken's: its
// special tokens are Llama 3's, with the names of Llama 3.1 where RoPE is scaled and of 3.0 where
// it is not; a vocabulary that has no room for them has none. One of SentencePiece (Llama 2) leaves
// `tokenizer` empty, and tokenizer_status says so. Thread-safe.

#ifndef CRIA_TRAINER_MODELS_META_MODEL_H_
#define CRIA_TRAINER_MODELS_META_MODEL_H_

#include <string>

#include "base/status.h"
#include "model/io/meta_params.h"
#include "trainer/models/opened_model.h"

namespace cria::trainer {

// A folder with a params.json.
bool LooksLikeMetaModel(const std::string& path);

// Errors: those of params.json, the checkpoint and the tokenizer; InvalidArgument when they don't
// fit each other, with both numbers.
StatusOr<ModelFiles> OpenMetaModel(const std::string& dir, const model::MetaOptions& options);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_META_MODEL_H_

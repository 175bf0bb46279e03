// Llamas with random weights that no file holds: what an export is tried on.
//
//   const ModelFiles files = RandomModel(config, StDtype::kBF16);
//   EXPECT_TRUE(ExportGguf(files, path).ok());
//
// Values are a function of (name, element), scaled so that activations keep their size through the
// layers. Thread-compatible.

#ifndef CRIA_TESTS_UNIT_TRAINER_MODELS_GGUF_RANDOM_MODEL_H_
#define CRIA_TESTS_UNIT_TRAINER_MODELS_GGUF_RANDOM_MODEL_H_

#include <string>

#include "model/io/safetensors.h"
#include "model/llama/config.h"
#include "trainer/models/opened_model.h"
#include "trainer/tokenizer/tokenizer_parts.h"

namespace cria::trainer {

// `dtype`: F32, F16 or BF16, of all weights.
ModelFiles RandomModel(const model::LlamaConfig& config, model::StDtype dtype);

// 6 heads of 32 over 2 of keys and values, llama3 rope whose bands all occur, vocabulary of 320:
// every row of a matrix is a multiple of 32.
model::LlamaConfig SmallConfig();

// 256 bytes in the byte alphabet's order, some merges, three control tokens and one user-defined
// from id 300 on: 300 begins a text, 301 ends it, 302 ends a turn.
TokenizerParts SmallTokenizerParts();

// SmallConfig's model with that tokenizer, its ids and a chat template.
ModelFiles SmallModel(model::StDtype dtype);

}  // namespace cria::trainer

#endif  // CRIA_TESTS_UNIT_TRAINER_MODELS_GGUF_RANDOM_MODEL_H_

// A model in a GGUF file, opened; any opened model written as one.
//
//   CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenGgufModel("model.gguf"));
//   CRIA_RETURN_IF_ERROR(ExportGguf(files, "copy.gguf", {.type = model::GgmlType::kQ8_0}));
//
// Called by OpenModel and by the commands import and export. What is kept and under which name:
// model/io/gguf_llama.h (sizes, weights), gguf_tokenizer.h (tokenizer, ids, chat template).
//
// The same model gives the same bytes. A file that ExportGguf wrote, opened and exported with the
// same type, or with none named, is that file again, byte for byte, Q8_0 included; so is one that
// went through a Hugging Face folder in between. Files of other writers keep their numbers, not
// their bytes: keys that we have no use for are dropped.
// Thread-safe on different models.

#ifndef CRIA_TRAINER_MODELS_GGUF_MODEL_H_
#define CRIA_TRAINER_MODELS_GGUF_MODEL_H_

#include <optional>
#include <string>

#include "base/status.h"
#include "model/io/gguf_types.h"
#include "trainer/models/opened_model.h"

namespace cria::trainer {

struct GgufExportOptions {
  // Of the matrices; norms are F32 whatever it says, and matrices whose rows are no multiple of 32
  // are F16 in a Q8_0 file, as llama.cpp's converter has them. None: each weight's own, which for
  // types that GGUF has not means the next one that holds it.
  std::optional<model::GgmlType> type = std::nullopt;
  bool keep_tokenizer = true;  // false: a vocabulary without texts
  bool overwrite = false;
};

// True for a file that begins as GGUF files do.
bool LooksLikeGgufModel(const std::string& path);

// NotFound, DataLoss (damaged), InvalidArgument or Unimplemented (a model that we don't run, a
// quantisation that we don't read); each names the file and the key or tensor.
StatusOr<ModelFiles> OpenGgufModel(const std::string& path);

// Writes `path`, whole or not at all. AlreadyExists unless told to overwrite; InvalidArgument for
// weights that don't make a Llama of the config, for a tokenizer that the format can't keep, for
// numbers that the type can't hold (over 65,504 in F16, not finite in Q8_0), with the weight and
// the place. Cost: one pass over the weights, a few MiB of memory and the tokenizer.
Status ExportGguf(const ModelFiles& files, const std::string& path,
                  const GgufExportOptions& options = {});

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_GGUF_MODEL_H_

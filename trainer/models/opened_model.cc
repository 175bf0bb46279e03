#include "trainer/models/opened_model.h"

namespace cria::trainer {

const char* ModelFormatName(ModelFormat format) {
  switch (format) {
    case ModelFormat::kHf:
      return "hf";
    case ModelFormat::kGguf:
      return "gguf";
    case ModelFormat::kMeta:
      return "meta";
    case ModelFormat::kRun:
      return "run";
  }
  return "?";
}

void FillSpecialIds(ModelFiles* files) {
  if (!files->tokenizer) return;
  const Tokenizer& tokenizer = *files->tokenizer;
  if (!files->bos_id) files->bos_id = tokenizer.bos_id();
  if (!files->eos_ids.empty()) return;
  for (const char* end : {kEndOfText, "<|eom_id|>", "<|eot_id|>"}) {
    const std::optional<int32_t> id = tokenizer.AddedTokenId(end);
    if (id) files->eos_ids.push_back(*id);
  }
  if (files->eos_ids.empty() && tokenizer.eos_id()) files->eos_ids.push_back(*tokenizer.eos_id());
}

}  // namespace cria::trainer

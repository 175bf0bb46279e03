// The tokenizer inside a GGUF file: tokenizer.ggml.* keys to a Tokenizer and back.
//
//   CRIA_RETURN_IF_ERROR(ReadGgufTokenizer(file, &files));             // tokenizer, ids, template
//   CRIA_RETURN_IF_ERROR(AddTokenizerKeys(files, /*keep_tokenizer=*/true, writer.get()));
//
//   tokenizer.ggml.model          "gpt2": byte-level BPE; "no_vocab" where there is none
//   tokenizer.ggml.pre            which expression splits text, by llama.cpp's name for it
//   tokenizer.ggml.tokens         texts by id: GPT-2's byte alphabet, added tokens as they are
//   tokenizer.ggml.token_type     1 normal, 3 control, 4 user-defined, 5 unused
//   tokenizer.ggml.merges         "a b" by rank
//   tokenizer.ggml.bos|eos|eot|eom_token_id, add_bos_token, add_eos_token
//   tokenizer.chat_template       Jinja text
//   cria.eos_token_ids            only where llama.cpp's three keys can't tell the list that ends a
//                                 generation, or its order
//
// Names of splits (in brackets: read, not written):
//   llama-bpe [llama3, llama-v3]   Llama 3's expression, ignore_merges
//   dbrx [smaug-bpe]               Llama 3's expression, without ignore_merges
//   gpt-2                          GPT-2's expression
//   qwen2 [stablelm2]              as Llama 3's, digits one by one
//   smollm [starcoder, refact]     digits one by one, then GPT-2's
// Ids that the vocabulary has and the tokenizer does not are written as "[PAD<id>]", unused.
// Called by gguf_model. Thread-safe.
// Source: ggml's docs/gguf.md; llama.cpp's llama-vocab.cpp for names and defaults.

#ifndef CRIA_TRAINER_MODELS_GGUF_TOKENIZER_H_
#define CRIA_TRAINER_MODELS_GGUF_TOKENIZER_H_

#include "base/status.h"
#include "model/io/gguf.h"
#include "model/io/gguf_writer.h"
#include "trainer/models/opened_model.h"

namespace cria::trainer {

// Fills tokenizer or tokenizer_status, bos_id, eos_ids and chat_template of `files`, whose config
// is there. A tokenizer of a kind that we can't run (SentencePiece, a `pre` that we don't know, no
// `pre` at all) is a tokenizer_status that names it: the weights are good without. DataLoss or
// InvalidArgument for a damaged one.
Status ReadGgufTokenizer(const model::GgufFile& file, ModelFiles* files);

// Adds the keys. InvalidArgument, with what to do, when the format can't keep the tokenizer:
// llama.cpp has no name for its split, its template is more than BOS and EOS, two tokens read the
// same, it has more ids than the model. Without `keep_tokenizer`, or where there is none, the
// model's vocabulary has no texts ("no_vocab"); ids and chat template are kept.
Status AddTokenizerKeys(const ModelFiles& files, bool keep_tokenizer, model::GgufWriter* writer);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_GGUF_TOKENIZER_H_

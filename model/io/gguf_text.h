// Texts and numbers of GGUF metadata: checks and forms that reader and writer share.
//
// Called by gguf.cc, gguf_writer.cc and gguf_llama.cc. Thread-safe.

#ifndef CRIA_MODEL_IO_GGUF_TEXT_H_
#define CRIA_MODEL_IO_GGUF_TEXT_H_

#include <string>
#include <string_view>

namespace cria::model {

// A name from a file, fit for a message: quoted, short, nothing but printable ASCII.
std::string GgufQuoted(std::string_view text);

// Well-formed UTF-8 by RFC 3629.
bool IsUtf8(std::string_view text);

// The double with the fewest decimal digits that rounds to `value`: 1e-5 and not
// 9.9999997473787516e-06, so that what a config says survives a file that keeps floats.
double ShortestDouble(float value);

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_GGUF_TEXT_H_

#include "trainer/tokenizer/load_tokenizer.h"

#include "base/file.h"

namespace cria::trainer {
namespace {

// A JSON document is an object; no line of base64 begins with a brace.
TokenizerFileKind KindOf(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && bytes[first] == '{' ? TokenizerFileKind::kHuggingFace
                                                                : TokenizerFileKind::kTiktoken;
}

}  // namespace

const char* TokenizerFileKindName(TokenizerFileKind kind) {
  return kind == TokenizerFileKind::kHuggingFace ? "tokenizer.json of Hugging Face" : "tiktoken";
}

StatusOr<std::string> FindTokenizerFile(const std::string& path) {
  if (!IsDir(path)) return path;
  for (const char* const name : {"tokenizer.json", "tokenizer.model"}) {
    std::string file = JoinPath(path, name);
    if (Exists(file)) return file;
  }
  return NotFoundError(path, ": no tokenizer.json and no tokenizer.model in this folder");
}

StatusOr<TokenizerFileKind> TokenizerFileKindOf(const std::string& file) {
  CRIA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
  return KindOf(bytes);
}

StatusOr<Tokenizer> LoadTokenizer(const std::string& path, const TiktokenOptions& tiktoken) {
  CRIA_ASSIGN_OR_RETURN(const std::string file, FindTokenizerFile(path));
  CRIA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
  if (KindOf(bytes) == TokenizerFileKind::kHuggingFace) return Tokenizer::FromJson(bytes, file);
  return TiktokenFromText(bytes, tiktoken, file);
}

}  // namespace cria::trainer

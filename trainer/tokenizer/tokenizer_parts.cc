#include "trainer/tokenizer/tokenizer_parts.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "trainer/tokenizer/byte_alphabet.h"

namespace cria::trainer {
namespace {

// Adds the added tokens' contents to `tokens`, so that every id has its bytes in one place.
Status PlaceAddedTokens(TokenizerParts* parts, const std::string& name) {
  std::set<std::string_view> contents;
  std::set<int32_t> ids;
  for (const AddedToken& added : parts->added) {
    if (added.content.empty()) {
      return DataLossError(name, ": added token ", added.id, " has no content");
    }
    if (added.id < 0) return DataLossError(name, ": added token with id ", added.id);
    if (!contents.insert(added.content).second) {
      return DataLossError(name, ": added token \"", added.content, "\" is there twice");
    }
    if (!ids.insert(added.id).second) {
      return DataLossError(name, ": id ", added.id, " belongs to two added tokens");
    }
    const auto id = static_cast<size_t>(added.id);
    if (id >= parts->tokens.size()) parts->tokens.resize(id + 1);
    std::string& bytes = parts->tokens[id];
    if (!bytes.empty() && bytes != added.content) {
      return DataLossError(name, ": id ", added.id, " is \"", ToAlphabet(bytes),
                           "\" in the vocabulary and the added token \"", added.content, "\"");
    }
    bytes = added.content;
  }
  return OkStatus();
}

// What Bpe needs: a token for each byte, no bytes twice, merges of tokens that exist and make
// their result.
Status CheckVocabulary(const TokenizerParts& parts, const std::string& name) {
  std::array<bool, 256> has_byte{};
  std::vector<std::string_view> sorted;
  for (const std::string& token : parts.tokens) {
    if (token.size() == 1) has_byte[static_cast<uint8_t>(token[0])] = true;
    if (!token.empty()) sorted.push_back(token);
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return DataLossError(name, ": token \"", ToAlphabet(*twice), "\" has two ids");
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (has_byte[byte]) continue;
    const char c = static_cast<char>(byte);
    return DataLossError(name, ": the vocabulary has no token for byte ", byte, " (\"",
                         ToAlphabet({&c, 1}), "\"), so not every text could be encoded");
  }
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const BpeMerge& merge = parts.merges[rank];
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      if (id < 0 || static_cast<size_t>(id) >= parts.tokens.size() || parts.tokens[id].empty()) {
        return DataLossError(name, ": merge ", rank, " names id ", id, ", which no token has");
      }
    }
    if (parts.tokens[merge.left] + parts.tokens[merge.right] != parts.tokens[merge.result]) {
      return DataLossError(name, ": merge ", rank, " of ids ", merge.left, " and ", merge.right,
                           " does not make token ", merge.result);
    }
  }
  for (const std::vector<int32_t>* ids : {&parts.template_prefix, &parts.template_suffix}) {
    for (const int32_t id : *ids) {
      if (id < 0 || static_cast<size_t>(id) >= parts.tokens.size()) {
        return DataLossError(name, ": the template names id ", id, ", which no token has");
      }
    }
  }
  return OkStatus();
}

}  // namespace

std::vector<bool> TokenizerParts::IsAddedOnly() const {
  std::vector<bool> added_only(tokens.size());
  for (const AddedToken& token : added) added_only[token.id] = token.content.size() > 1;
  for (const BpeMerge& merge : merges) {
    added_only[merge.left] = added_only[merge.right] = added_only[merge.result] = false;
  }
  return added_only;
}

Status CompleteParts(const std::string& name, TokenizerParts* parts) {
  CRIA_RETURN_IF_ERROR(PlaceAddedTokens(parts, name));
  CRIA_RETURN_IF_ERROR(CheckVocabulary(*parts, name));
  std::sort(parts->added.begin(), parts->added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return OkStatus();
}

}  // namespace cria::trainer

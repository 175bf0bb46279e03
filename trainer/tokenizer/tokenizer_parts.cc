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
  for (AddedToken& added : parts->added) {
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
    // "é" in the vocabulary is one byte, whoever adds a token of that name.
    if (added.in_vocab && ToAlphabet(bytes) == added.content) continue;
    if (!bytes.empty() && bytes != added.content) {
      return DataLossError(name, ": id ", added.id, " is \"", ToAlphabet(bytes),
                           "\" in the vocabulary and the added token \"", added.content, "\"");
    }
    // A byte's own token stays one, whoever else names it.
    if (bytes == added.content && bytes.size() == 1) added.in_vocab = true;
    bytes = added.content;
  }
  return OkStatus();
}

Status CheckMerges(const TokenizerParts& parts, const std::string& name) {
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
  return OkStatus();
}

// What Bpe needs: no bytes twice, merges of tokens that exist and make their result.
Status CheckVocabulary(const TokenizerParts& parts, const std::string& name) {
  CRIA_RETURN_IF_ERROR(CheckMerges(parts, name));
  for (const int32_t id : parts.literal_ids) {
    if (id < 0 || static_cast<size_t>(id) >= parts.tokens.size()) {
      return DataLossError(name, ": literal token ", id, ", which there is not");
    }
  }
  const std::vector<bool> never_merged = parts.IsNeverMerged();
  std::vector<std::string_view> sorted;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    if (!parts.tokens[id].empty() && !never_merged[id]) sorted.push_back(parts.tokens[id]);
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return DataLossError(name, ": token \"", ToAlphabet(*twice), "\" has two ids");
  }
  if (parts.unk_id.has_value() &&
      (*parts.unk_id < 0 || *parts.unk_id >= static_cast<int64_t>(parts.tokens.size()))) {
    return DataLossError(name, ": the unknown token has id ", *parts.unk_id,
                         ", which no token has");
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

// Readers of a file give added tokens that the vocabulary does not list the ids after it, one by
// one. Where that would not be their ids, the vocabulary has to list them.
void ListWhereIdsWouldMove(TokenizerParts* parts) {
  const std::vector<bool> never_merged = parts->IsNeverMerged();
  std::vector<bool> is_optional(parts->tokens.size());
  for (const AddedToken& token : parts->added) {
    is_optional[token.id] = never_merged[token.id] && !token.in_vocab;
  }
  size_t num_kept = parts->tokens.size();
  while (num_kept > 0 && is_optional[num_kept - 1]) --num_kept;
  const bool has_gap = std::any_of(parts->tokens.begin(), parts->tokens.end(),
                                   [](const std::string& token) { return token.empty(); });
  for (AddedToken& token : parts->added) {
    if (has_gap || static_cast<size_t>(token.id) < num_kept) token.in_vocab = true;
  }
}

}  // namespace

std::vector<bool> TokenizerParts::IsNeverMerged() const {
  std::vector<bool> never(tokens.size());
  for (const AddedToken& token : added) {
    never[token.id] = !token.in_vocab || (token.special && tokens[token.id].size() > 1);
  }
  for (const BpeMerge& merge : merges) {
    never[merge.left] = never[merge.right] = never[merge.result] = false;
  }
  for (const int32_t id : literal_ids) never[id] = true;
  return never;
}

std::optional<int> TokenizerParts::MissingByte() const {
  std::array<bool, 256> has_byte{};
  for (const std::string& token : tokens) {
    if (token.size() == 1) has_byte[static_cast<uint8_t>(token[0])] = true;
  }
  const auto missing = std::find(has_byte.begin(), has_byte.end(), false);
  if (missing == has_byte.end()) return std::nullopt;
  return static_cast<int>(missing - has_byte.begin());
}

Status CompleteParts(const std::string& name, TokenizerParts* parts) {
  CRIA_RETURN_IF_ERROR(PlaceAddedTokens(parts, name));
  CRIA_RETURN_IF_ERROR(CheckVocabulary(*parts, name));
  std::sort(parts->added.begin(), parts->added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  ListWhereIdsWouldMove(parts);
  return OkStatus();
}

}  // namespace cria::trainer

#include "trainer/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/pretokenizer.h"
#include "trainer/tokenizer/tokenizer_json.h"

namespace cria::trainer {
namespace {

// Merging must not know what only an added token is: text that reads like a control token and is
// not parsed stays text.
std::vector<std::string> TokensForMerging(const TokenizerParts& parts) {
  std::vector<std::string> tokens = parts.tokens;
  const std::vector<bool> added_only = parts.IsAddedOnly();
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (added_only[id]) tokens[id].clear();
  }
  return tokens;
}

}  // namespace

struct Tokenizer::State {
  State(TokenizerParts parts_in, Pretokenizer pretokenizer_in)
      : parts(std::move(parts_in)),
        pretokenizer(std::move(pretokenizer_in)),
        bpe(TokensForMerging(parts), parts.merges, parts.ignore_merges),
        matcher(parts.added),
        is_special(parts.tokens.size()) {
    for (const AddedToken& token : parts.added) is_special[token.id] = token.special;
  }

  const TokenizerParts parts;
  const Pretokenizer pretokenizer;
  const Bpe bpe;
  const AddedTokenMatcher matcher;  // points into parts.added
  std::vector<bool> is_special;
};

StatusOr<Tokenizer> Tokenizer::Load(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return FromJson(text, path);
}

StatusOr<Tokenizer> Tokenizer::FromJson(std::string_view text, const std::string& name) {
  CRIA_ASSIGN_OR_RETURN(TokenizerParts parts, PartsFromJson(text, name));
  return FromParts(std::move(parts), name);
}

StatusOr<Tokenizer> Tokenizer::FromParts(TokenizerParts parts, const std::string& name) {
  CRIA_RETURN_IF_ERROR(CompleteParts(name, &parts));
  StatusOr<Pretokenizer> pretokenizer = Pretokenizer::Create(parts.split_expressions);
  if (!pretokenizer.ok()) return Annotate(pretokenizer.status(), name);
  return Tokenizer(
      std::make_shared<const State>(std::move(parts), std::move(pretokenizer).value()));
}

std::string Tokenizer::ToJson() const { return PartsToJson(state_->parts); }

Status Tokenizer::Save(const std::string& path) const { return WriteFileAtomic(path, ToJson()); }

std::string Tokenizer::Fingerprint() const { return HashHex(ToJson()); }

void Tokenizer::Encode(std::string_view text, const EncodeOptions& options,
                       std::vector<int32_t>* ids) const {
  const State& state = *state_;
  IdSink sink(ids);
  const auto encode_plain = [&](std::string_view plain) {
    const char* const text_end = text.data() + text.size();
    state.pretokenizer.ForEachPiece(
        plain, [&](std::string_view piece) { state.bpe.EncodePiece(piece, text_end, &sink); });
  };
  if (options.add_template) {
    for (const int32_t id : state.parts.template_prefix) sink.Push(id);
  }
  size_t done = 0;
  while (done < text.size()) {
    const AddedTokenMatcher::Match match = state.matcher.Find(text, done, options.parse_special);
    if (match.token == nullptr) break;
    encode_plain(text.substr(done, match.begin - done));
    sink.Push(match.token->id);
    done = match.begin + match.token->content.size();
  }
  encode_plain(text.substr(done));
  if (options.add_template) {
    for (const int32_t id : state.parts.template_suffix) sink.Push(id);
  }
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    text += TokenBytes(id);
  }
  return text;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return state_->parts.tokens[id];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && state_->is_special[id];
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(state_->parts.tokens.size()); }

std::optional<int32_t> Tokenizer::bos_id() const { return AddedTokenId(kBeginOfText); }
std::optional<int32_t> Tokenizer::eos_id() const { return AddedTokenId(kEndOfText); }

std::optional<int32_t> Tokenizer::AddedTokenId(std::string_view content) const {
  for (const AddedToken& token : state_->parts.added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

std::vector<std::string_view> Tokenizer::Split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  state_->pretokenizer.ForEachPiece(text, [&](std::string_view piece) { pieces.push_back(piece); });
  return pieces;
}

bool Tokenizer::CanCutAtLineStarts(const EncodeOptions& options) const {
  if (!state_->pretokenizer.SplitsAtLineStarts()) return false;
  return std::none_of(state_->parts.added.begin(), state_->parts.added.end(),
                      [&](const AddedToken& token) {
                        return (options.parse_special || !token.special) &&
                               token.content.find('\n') != std::string::npos;
                      });
}

const TokenizerParts& Tokenizer::parts() const { return state_->parts; }

}  // namespace cria::trainer

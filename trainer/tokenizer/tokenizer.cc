#include "trainer/tokenizer/tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/pretokenizer.h"
#include "trainer/tokenizer/tokenizer_json.h"

namespace cria::trainer {
namespace {

// Merging must not know what only an added token is: text that reads like a control token and is
// not parsed stays text.
std::vector<std::string> TokensForMerging(const TokenizerParts& parts) {
  std::vector<std::string> tokens = parts.tokens;
  const std::vector<bool> never_merged = parts.IsNeverMerged();
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (never_merged[id]) tokens[id].clear();
  }
  return tokens;
}

// Those that are looked for in the text as it is, or in normalized text.
AddedTokenMatcher MakeMatcher(const TokenizerParts& parts, const Normalizer& normalizer,
                              bool normalized) {
  std::vector<AddedTokenMatcher::Pattern> patterns;
  for (const AddedToken& token : parts.added) {
    if (token.normalized != normalized) continue;
    std::string text = normalized ? normalizer.Apply(token.content) : token.content;
    // A normalizer can leave nothing, and nothing is found nowhere.
    if (!text.empty()) patterns.push_back({std::move(text), token});
  }
  return AddedTokenMatcher(std::move(patterns));
}

}  // namespace

struct Tokenizer::State {
  State(TokenizerParts parts_in, Pretokenizer pretokenizer_in, Normalizer normalizer_in)
      : parts(std::move(parts_in)),
        pretokenizer(std::move(pretokenizer_in)),
        normalizer(std::move(normalizer_in)),
        bpe(TokensForMerging(parts), parts.merges, parts.ignore_merges,
            {.id = parts.unk_id.value_or(-1), .fuse = parts.fuse_unk}),
        matcher(MakeMatcher(parts, normalizer, /*normalized=*/false)),
        normalized_matcher(MakeMatcher(parts, normalizer, /*normalized=*/true)),
        is_special(parts.tokens.size()) {
    for (const AddedToken& token : parts.added) {
      is_special[token.id] = token.special;
      if (!token.normalized || normalizer.empty()) continue;
      std::string text = normalizer.Apply(token.content);
      if (text == token.content) continue;
      std::string bytes;
      if (token.in_vocab && FromAlphabet(text, &bytes)) text = bytes;
      normalized_content.emplace(token.id, std::move(text));
    }
  }

  // The ids of text that has no added token any more.
  void EncodePlain(std::string_view text, IdSink* sink) const {
    if (pretokenizer.PiecesLieInText()) [[likely]] {
      const char* const text_end = text.data() + text.size();
      // Inlined, or a call for each piece costs 7 % of encoding English.
      pretokenizer.ForEachPieceInText(
          text, [ this, text_end, sink ](std::string_view piece)
                    __attribute__((always_inline)) { bpe.EncodePiece(piece, text_end, sink); });
      return;
    }
    pretokenizer.ForEachStepPiece(text, [&](std::string_view piece) {
      bpe.EncodePiece(piece, piece.data() + piece.size(), sink);
    });
  }

  // The ids of text between the added tokens that are looked for before normalizing.
  void EncodeRaw(std::string_view text, bool parse_special, IdSink* sink) const {
    std::string normalized;
    if (!normalizer.empty()) {
      normalized = normalizer.Apply(text);
      text = normalized;
    }
    if (!normalized_matcher.HasAny(parse_special)) {
      EncodePlain(text, sink);
      return;
    }
    normalized_matcher.ForEachPart(text, parse_special, [&](std::string_view part, int32_t id) {
      if (id >= 0) {
        sink->Push(id);
      } else {
        EncodePlain(part, sink);
      }
    });
  }

  const TokenizerParts parts;
  const Pretokenizer pretokenizer;
  const Normalizer normalizer;
  const Bpe bpe;
  const AddedTokenMatcher matcher;
  const AddedTokenMatcher normalized_matcher;
  std::vector<bool> is_special;
  // Of added tokens that the normalizer changes: they are looked for and decoded as that.
  std::unordered_map<int32_t, std::string> normalized_content;
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
  StatusOr<Pretokenizer> pretokenizer = parts.pre_tokenizer.empty()
                                            ? Pretokenizer::Create(parts.split_expressions)
                                            : Pretokenizer::CreateFromSteps(parts.pre_tokenizer);
  if (!pretokenizer.ok()) return Annotate(pretokenizer.status(), name);
  StatusOr<Normalizer> normalizer = Normalizer::Create(parts.normalizer);
  if (!normalizer.ok()) return Annotate(normalizer.status(), name);
  return Tokenizer(std::make_shared<const State>(std::move(parts), std::move(pretokenizer).value(),
                                                 std::move(normalizer).value()));
}

std::string Tokenizer::ToJson() const { return PartsToJson(state_->parts); }

Status Tokenizer::Save(const std::string& path) const { return WriteFileAtomic(path, ToJson()); }

std::string Tokenizer::Fingerprint() const { return HashHex(ToJson()); }

void Tokenizer::Encode(std::string_view text, const EncodeOptions& options,
                       std::vector<int32_t>* ids) const {
  const State& state = *state_;
  IdSink sink(ids);
  if (options.add_template) {
    for (const int32_t id : state.parts.template_prefix) sink.Push(id);
  }
  if (!state.matcher.HasAny(options.parse_special)) {
    state.EncodeRaw(text, options.parse_special, &sink);
  } else {
    state.matcher.ForEachPart(text, options.parse_special, [&](std::string_view part, int32_t id) {
      if (id >= 0) {
        sink.Push(id);
      } else {
        state.EncodeRaw(part, options.parse_special, &sink);
      }
    });
  }
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
  if (!state_->normalized_content.empty()) {
    const auto found = state_->normalized_content.find(id);
    if (found != state_->normalized_content.end()) return found->second;
  }
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

std::vector<std::string> Tokenizer::Split(std::string_view text) const {
  std::vector<std::string> pieces;
  state_->pretokenizer.ForEachPiece(text,
                                    [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

bool Tokenizer::CanCutAtLineStarts(const EncodeOptions& options) const {
  if (!state_->pretokenizer.SplitsAtLineStarts() || !state_->normalizer.empty()) return false;
  return std::none_of(
      state_->parts.added.begin(), state_->parts.added.end(), [&](const AddedToken& token) {
        return (options.parse_special || !token.special) &&
               (token.lstrip || token.rstrip || token.content.find('\n') != std::string::npos);
      });
}

const TokenizerParts& Tokenizer::parts() const { return state_->parts; }

}  // namespace cria::trainer

#include "trainer/tokenizer/tiktoken.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "trainer/tokenizer/tokenizer_parts.h"

namespace cria::trainer {
namespace {

constexpr int kNumSpecials = 256;

// The largest known vocabularies have 200,000 tokens in 4 MB, and none a token of more than 128
// bytes. Finding the cuts of a token takes the square of its length.
constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr size_t kTokenBytesMax = 1024;

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> MakeBase64Values() {
  std::array<int8_t, 256> values{};
  for (int8_t& value : values) value = -1;
  for (int i = 0; i < 64; ++i) values[static_cast<uint8_t>(kBase64[i])] = static_cast<int8_t>(i);
  return values;
}
constexpr std::array<int8_t, 256> kBase64Values = MakeBase64Values();

// False where `text` is not what an encoder writes: other characters, padding missing or too much,
// bits set beyond the last byte.
bool DecodeBase64(std::string_view text, std::string* bytes) {
  bytes->clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int value = kBase64Values[static_cast<uint8_t>(c)];
    if (value < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes->push_back(static_cast<char>(bits >> num_bits & 0xFF));
    bits &= (1u << num_bits) - 1;
  }
  return bits == 0;
}

std::string EncodeBase64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      text.push_back(k <= count ? kBase64[bits >> (18 - 6 * k) & 63] : '=');
    }
  }
  return text;
}

// A protobuf message whose first field is a list of (piece, score, type).
bool LooksLikeSentencePiece(std::string_view text) {
  return text.size() > 3 && text[0] == '\n' && text[2] == '\n';
}

// What a message may show of a line.
std::string Shown(std::string_view line) {
  std::string out = "\"";
  for (const char c : line.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (line.size() > 40 ? "...\"" : "\"");
}

// The tokens by rank.
StatusOr<std::vector<std::string>> ReadLines(std::string_view text, const std::string& name) {
  std::vector<std::string> tokens(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) +
                                  (text.ends_with('\n') ? 0 : 1));
  std::string bytes;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t space = row.find(' ');
    if (space == std::string_view::npos || !DecodeBase64(row.substr(0, space), &bytes)) {
      return DataLossError(name, ":", line, ": ", Shown(row),
                           ": expected a token in base64, a space and its rank");
    }
    if (bytes.size() > kTokenBytesMax) {
      return DataLossError(name, ":", line, ": a token of ", bytes.size(), " bytes, more than ",
                           kTokenBytesMax);
    }
    const std::string_view digits = row.substr(space + 1);
    size_t rank = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() ||
        rank >= tokens.size()) {
      return DataLossError(name, ":", line, ": rank ", Shown(digits),
                           ": expected a number below the number of lines, ", tokens.size());
    }
    if (!tokens[rank].empty()) {
      return DataLossError(name, ":", line, ": rank ", rank, " is there twice");
    }
    tokens[rank] = bytes;
  }
  return tokens;
}

using IdOfBytes = std::unordered_map<std::string_view, int32_t>;

// Each cut of each token into two tokens: by the token's rank, then by the parts'.
std::vector<BpeMerge> AllCuts(const std::vector<std::string>& tokens, const IdOfBytes& id_of) {
  std::vector<BpeMerge> merges;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    const size_t first = merges.size();
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = id_of.find(token.substr(0, cut));
      if (left == id_of.end()) continue;
      const auto right = id_of.find(token.substr(cut));
      if (right == id_of.end()) continue;
      merges.push_back({left->second, right->second, static_cast<int32_t>(id)});
    }
    std::sort(merges.begin() + static_cast<ptrdiff_t>(first), merges.end(),
              [](const BpeMerge& a, const BpeMerge& b) {
                return std::tie(a.left, a.right) < std::tie(b.left, b.right);
              });
  }
  return merges;
}

IdOfBytes IndexTokens(const std::vector<std::string>& tokens) {
  IdOfBytes id_of;
  id_of.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) id_of.emplace(tokens[id], static_cast<int32_t>(id));
  return id_of;
}

}  // namespace

std::vector<std::string> TiktokenSpecialNames(TiktokenSpecials specials) {
  std::vector<std::string> names;
  int reserved = 0;
  const auto reserve = [&] {
    names.push_back(StrCat("<|reserved_special_token_", reserved++, "|>"));
  };
  if (specials == TiktokenSpecials::kNone) return names;
  const bool is_30 = specials == TiktokenSpecials::kLlama30;
  names = {kBeginOfText, kEndOfText};
  reserve();
  reserve();
  if (is_30) {
    reserve();
    reserve();
  } else {
    names.push_back("<|finetune_right_pad_id|>");
    if (specials == TiktokenSpecials::kLlama31) {
      names.push_back("<|step_id|>");
    } else {
      reserve();
    }
  }
  names.insert(names.end(), {"<|start_header_id|>", "<|end_header_id|>"});
  if (is_30) {
    reserve();
  } else {
    names.push_back("<|eom_id|>");
  }
  names.push_back("<|eot_id|>");
  if (!is_30) names.push_back("<|python_tag|>");
  while (names.size() < kNumSpecials) reserve();
  return names;
}

StatusOr<Tokenizer> LoadTiktoken(const std::string& path, const TiktokenOptions& options) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  return TiktokenFromText(text, options, path);
}

StatusOr<Tokenizer> TiktokenFromText(std::string_view text, const TiktokenOptions& options,
                                     const std::string& name) {
  if (text.empty()) return DataLossError(name, ": the file is empty");
  if (LooksLikeSentencePiece(text)) {
    return UnimplementedError(name,
                              ": a sentencepiece model (Llama 2's): only byte-level BPE is "
                              "understood, as tiktoken's or Hugging Face's file");
  }
  TokenizerParts parts;
  CRIA_ASSIGN_OR_RETURN(parts.tokens, ReadLines(text, name));
  if (const std::optional<int> byte = parts.MissingByte()) {
    return DataLossError(name, ": there is no token for byte ", *byte,
                         ", so not every text could be encoded");
  }
  const IdOfBytes id_of = IndexTokens(parts.tokens);
  parts.merges = AllCuts(parts.tokens, id_of);
  parts.ignore_merges = true;
  parts.split_expressions = {options.split_expression};
  auto id = static_cast<int32_t>(parts.tokens.size());
  for (const std::string& special : TiktokenSpecialNames(options.specials)) {
    if (special == kBeginOfText && options.begin_of_text) parts.template_prefix = {id};
    parts.added.push_back({.id = id++, .content = special});
  }
  return Tokenizer::FromParts(std::move(parts), name);
}

StatusOr<std::string> TiktokenText(const Tokenizer& tokenizer) {
  const TokenizerParts& parts = tokenizer.parts();
  std::vector<std::string> tokens = parts.tokens;
  if (!parts.added.empty()) tokens.resize(static_cast<size_t>(parts.added.front().id));
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) {
      return FailedPreconditionError("tiktoken's file has no gaps, and there is no token ", id);
    }
  }
  if (!parts.ignore_merges) {
    return FailedPreconditionError(
        "tiktoken takes a piece that is a token whole, and here ignore_merges is false");
  }
  const std::vector<BpeMerge> cuts = AllCuts(tokens, IndexTokens(tokens));
  if (cuts != parts.merges) {
    return FailedPreconditionError("tiktoken merges whatever makes a token, ", cuts.size(),
                                   " pairs, and here are ", parts.merges.size(),
                                   " merges, or another order: it would give other ids");
  }
  std::string text;
  for (size_t id = 0; id < tokens.size(); ++id) {
    text += StrCat(EncodeBase64(tokens[id]), " ", id, "\n");
  }
  return text;
}

}  // namespace cria::trainer

#include "trainer/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "base/hash.h"
#include "trainer/tokenizer/byte_alphabet.h"

namespace cria::trainer {
namespace {

constexpr size_t kPieceBytesMax = 1024;

// A distinct piece as ids, and how often it occurs.
struct Word {
  std::vector<int32_t> ids;
  int64_t count;
};

// The merging itself: words, counts of neighbouring pairs, a heap of candidates.
class Merger {
 public:
  Merger(std::vector<std::string> tokens, std::vector<Word> words)
      : tokens_(std::move(tokens)), words_(std::move(words)) {
    for (size_t id = 0; id < tokens_.size(); ++id) {
      id_of_.emplace(tokens_[id], static_cast<int32_t>(id));
    }
    for (size_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
        Count(word.ids[i], word.ids[i + 1], word.count, w);
      }
    }
    for (const auto& [key, pair] : pairs_) heap_.push({pair.count, key});
  }

  // Merges until there are `num_tokens` tokens; false when pairs run out first.
  bool MergeUntil(size_t num_tokens, int64_t pair_count_min) {
    while (tokens_.size() < num_tokens) {
      if (heap_.empty()) return false;
      const Candidate top = heap_.top();
      heap_.pop();
      const int64_t count = pairs_[top.key].count;
      if (count != top.count) {  // stale: it has lost occurrences since it was pushed
        if (count > 0) heap_.push({count, top.key});
        continue;
      }
      if (count < std::max<int64_t>(1, pair_count_min)) return false;
      Merge(top.key);
    }
    return true;
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<BpeMerge>& merges() const { return merges_; }

 private:
  struct Pair {
    int64_t count = 0;
    bool is_merge = false;
    std::vector<uint32_t> words;  // where it occurs or has occurred
  };
  struct Candidate {
    int64_t count;
    uint64_t key;  // left << 32 | right
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }

  void Count(int32_t left, int32_t right, int64_t delta, size_t word) {
    Pair& pair = pairs_[Key(left, right)];
    pair.count += delta;
    const auto w = static_cast<uint32_t>(word);
    if (delta > 0 && (pair.words.empty() || pair.words.back() != w)) pair.words.push_back(w);
  }

  void Merge(uint64_t key) {
    const auto left = static_cast<int32_t>(key >> 32);
    const auto right = static_cast<int32_t>(key & 0xFFFFFFFF);
    // Two ways to the same bytes are one token.
    const auto [place, is_new] =
        id_of_.try_emplace(tokens_[left] + tokens_[right], static_cast<int32_t>(tokens_.size()));
    const int32_t merged = place->second;
    if (is_new) tokens_.push_back(place->first);
    if (!pairs_[key].is_merge) merges_.push_back({left, right, merged});

    const std::vector<uint32_t> words = std::exchange(pairs_[key].words, {});
    std::vector<uint64_t> grown;
    for (const uint32_t w : words) MergeIn(w, left, right, merged, &grown);
    pairs_[key].count = 0;
    pairs_[key].is_merge = true;

    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const uint64_t pair : grown) {
      const int64_t count = pairs_[pair].count;
      if (count > 0) heap_.push({count, pair});
    }
  }

  // Replaces the pair in one word, left to right, and moves the counts of its neighbours along.
  void MergeIn(uint32_t w, int32_t left, int32_t right, int32_t merged,
               std::vector<uint64_t>* grown) {
    std::vector<int32_t>& ids = words_[w].ids;
    const int64_t count = words_[w].count;
    size_t out = 0;
    for (size_t i = 0; i < ids.size(); ++out) {
      if (i + 1 == ids.size() || ids[i] != left || ids[i + 1] != right) {
        ids[out] = ids[i++];
        continue;
      }
      if (out > 0) {
        Count(ids[out - 1], left, -count, w);
        Count(ids[out - 1], merged, count, w);
        grown->push_back(Key(ids[out - 1], merged));
      }
      if (i + 2 < ids.size()) {
        Count(right, ids[i + 2], -count, w);
        Count(merged, ids[i + 2], count, w);
        grown->push_back(Key(merged, ids[i + 2]));
      }
      ids[out] = merged;
      i += 2;
    }
    ids.resize(out);
  }

  std::vector<std::string> tokens_;
  std::vector<Word> words_;
  std::unordered_map<std::string, int32_t> id_of_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<BpeMerge> merges_;
};

}  // namespace

size_t BpeTrainer::PieceHash::operator()(std::string_view piece) const { return Hash64(piece); }

StatusOr<BpeTrainer> BpeTrainer::Create(BpeTrainerOptions options) {
  const size_t num_special = options.special_tokens.size();
  if (options.vocab_size < 0 || static_cast<size_t>(options.vocab_size) < 256 + num_special) {
    return InvalidArgumentError("vocabulary of ", options.vocab_size, ": at least ",
                                256 + num_special, " are needed (256 bytes and ", num_special,
                                " special tokens)");
  }
  CRIA_ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::Create(options.split_expressions));
  return BpeTrainer(std::move(options), std::move(pretokenizer));
}

void BpeTrainer::AddText(std::string_view text) {
  num_bytes_ += text.size();
  pretokenizer_.ForEachPiece(text, [&](std::string_view piece) {
    while (!piece.empty()) {
      const std::string_view part = piece.substr(0, kPieceBytesMax);
      piece.remove_prefix(part.size());
      const auto found = counts_.find(part);
      if (found != counts_.end()) {
        ++found->second;
      } else {
        counts_.emplace(part, 1);
      }
    }
  });
}

StatusOr<Tokenizer> BpeTrainer::Train() const {
  if (num_bytes_ == 0) return InvalidArgumentError("train a tokenizer: there is no text");
  TokenizerParts parts;
  std::array<int32_t, 256> id_of_byte;
  for (int32_t id = 0; id < 256; ++id) {
    const uint8_t byte = ByteOfRank()[id];
    id_of_byte[byte] = id;
    parts.tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<Word> words;
  words.reserve(counts_.size());
  for (const auto& [piece, count] : counts_) {
    Word word{{}, count};
    for (const char c : piece) word.ids.push_back(id_of_byte[static_cast<uint8_t>(c)]);
    words.push_back(std::move(word));
  }

  const size_t num_special = options_.special_tokens.size();
  Merger merger(std::move(parts.tokens), std::move(words));
  if (!merger.MergeUntil(options_.vocab_size - num_special, options_.pair_count_min)) {
    return InvalidArgumentError(
        "a vocabulary of ", options_.vocab_size, " is larger than the text allows: its ",
        num_bytes_, " bytes (", counts_.size(), " distinct pieces) give at most ",
        merger.tokens().size() + num_special, " tokens; ask for fewer or give more text");
  }
  parts.tokens = merger.tokens();
  parts.merges = merger.merges();
  parts.split_expressions = options_.split_expressions;
  parts.ignore_merges = true;
  for (const std::string& content : options_.special_tokens) {
    const auto id = static_cast<int32_t>(parts.tokens.size() + parts.added.size());
    parts.added.push_back({.id = id, .content = content});
    if (content == kBeginOfText) parts.template_prefix.push_back(id);
  }
  return Tokenizer::FromParts(std::move(parts), "trained tokenizer");
}

}  // namespace cria::trainer

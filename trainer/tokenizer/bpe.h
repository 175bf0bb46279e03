// The second half of byte-level BPE: a piece of text into token ids by merging.
//
//   const Bpe bpe(tokens, merges, /*ignore_merges=*/true);
//   IdSink sink(&ids);
//   bpe.EncodePiece(" wilderness", &sink);
//
// A piece starts as its bytes' tokens. As long as two neighbours are in the table of merges, the
// pair of lowest rank, the leftmost of equals, becomes one token. With ignore_merges a piece that
// is itself a token is that token, whatever the merges say.
//
// Three paths give the same ids:
//   a cache of short pieces, direct-mapped, one per thread    most of English: one cache line
//   short pieces: the lowest rank by a scan over all pairs    O(n^2), n <= 64
//   long pieces: a linked list and a heap of pairs            O(n log n), also for a megabyte of
//   "a"
// Thread-safe once made. Memory: about 60 bytes a token and 32 a merge, and 512 KiB a thread that
// encodes.
// Source: Sennrich et al., "Neural machine translation of rare words with subword units", 2016;
// openai/tiktoken, src/lib.rs, for the rule on whole pieces.

#ifndef CRIA_TRAINER_TOKENIZER_BPE_H_
#define CRIA_TRAINER_TOKENIZER_BPE_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace cria::trainer {

// Appends ids to a vector in blocks, so that the hot loop writes to a fixed buffer.
class IdSink {
 public:
  // `out` outlives the sink; it has all ids only after the sink's destructor.
  explicit IdSink(std::vector<int32_t>* out) : out_(out) {}
  ~IdSink() { Flush(); }
  IdSink(const IdSink&) = delete;
  IdSink& operator=(const IdSink&) = delete;

  void Push(int32_t id) {
    if (size_ == kCapacity) Flush();
    buffer_[size_++] = id;
  }
  // Appends the first `count` of ids[0 .. kBlock), copying all of them.
  static constexpr int kBlock = 10;
  void PushBlock(const int32_t* ids, int count) {
    if (size_ + kBlock > kCapacity) Flush();
    std::memcpy(&buffer_[size_], ids, kBlock * sizeof(int32_t));
    size_ += count;
  }

 private:
  static constexpr int kCapacity = 1024;
  void Flush() {
    out_->insert(out_->end(), buffer_.begin(), buffer_.begin() + size_);
    size_ = 0;
  }

  std::vector<int32_t>* const out_;
  int size_ = 0;
  std::array<int32_t, kCapacity> buffer_;
};

// One merge: where `left` and `right` are neighbours, they become `result`. A merge's rank is its
// place in the list.
struct BpeMerge {
  int32_t left;
  int32_t right;
  int32_t result;
  bool operator==(const BpeMerge&) const = default;
};

// What becomes of a byte that has no token.
struct BpeUnknown {
  int32_t id = -1;    // this token; -1: nothing, and its neighbours may merge
  bool fuse = false;  // one token for a run of such bytes
};

class Bpe {
 public:
  // tokens[id] = the token's bytes; empty: no token of this id. Every id of a merge is there (the
  // caller has checked: CHECKed again here). Of two merges of the same pair the later one counts.
  Bpe(std::vector<std::string> tokens, const std::vector<BpeMerge>& merges, bool ignore_merges,
      const BpeUnknown& unknown = {});
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Appends the piece's ids. `text_end`: up to where the bytes after the piece may be read, at
  // least the piece's own end; sixteen readable bytes make the short path faster. Inlined into each
  // loop over pieces, as the hot loop needs it.
  [[gnu::always_inline]] void EncodePiece(std::string_view piece, const char* text_end,
                                          IdSink* sink) const {
    if (piece.size() > kCachedBytes) {
      EncodeUncached(piece, sink);
      return;
    }
    const Key key = MakeKey(piece, text_end);
    CacheEntry& entry = ThreadCache()[Slot(key)];
    if (entry.key != key || entry.owner != owner_) [[unlikely]] {
      if (!Fill(piece, key, &entry)) {
        EncodeUncached(piece, sink);
        return;
      }
    }
    sink->PushBlock(entry.ids.data(), entry.count);
  }

  // The same without the cache.
  void EncodeUncached(std::string_view piece, IdSink* sink) const;

  // The id of the token with these bytes, -1 when there is none.
  int32_t Find(std::string_view bytes) const;

  const std::vector<std::string>& tokens() const { return tokens_; }
  bool ignore_merges() const { return ignore_merges_; }

 private:
  static constexpr size_t kCachedBytes = 15;
  static constexpr uint64_t kCacheEntries = 8192;

  // A piece of up to 15 bytes with its length in the last byte.
  struct Key {
    uint64_t low;
    uint64_t high;
    bool operator==(const Key&) const = default;
  };
  struct alignas(64) CacheEntry {
    Key key{0, 0};
    uint32_t owner = 0;  // which Bpe filled it; 0: none
    int32_t count = 0;
    std::array<int32_t, IdSink::kBlock> ids{};
  };

  struct Pair {
    uint64_t key = kNoPair;  // left << 32 | right
    uint32_t rank = 0;
    int32_t result = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  static Key MakeKey(std::string_view piece, const char* text_end) {
    uint64_t words[2] = {0, 0};
    const size_t n = piece.size();
    if (text_end - piece.data() >= 16) {
      std::memcpy(words, piece.data(), 16);
      // Clear what lies beyond the piece. n < 16, and n == 8 keeps the whole low word.
      words[0] &= n >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * n)) - 1;
      words[1] &= n <= 8 ? 0 : (uint64_t{1} << (8 * (n - 8))) - 1;
    } else {
      std::memcpy(words, piece.data(), n);
    }
    return {words[0], words[1] | static_cast<uint64_t>(n) << 56};
  }
  static uint64_t Slot(const Key& key) {
    const uint64_t mixed = (key.low ^ (key.high * 0x9E3779B97F4A7C15u)) * 0xD6E8FEB86659FD93u;
    return mixed >> 51;  // the top 13 bits: kCacheEntries
  }
  static CacheEntry* ThreadCache();
  bool Fill(std::string_view piece, const Key& key, CacheEntry* entry) const;

  // The tokens of the piece's bytes, before any merge; bytes without one as `unknown_` says.
  std::vector<int32_t> KnownByteTokens(std::string_view piece) const;
  // The merge of two neighbours, nullptr when there is none.
  const Pair* FindPair(int32_t left, int32_t right) const;
  void MergeShort(std::string_view piece, IdSink* sink) const;
  void MergeLong(std::string_view piece, IdSink* sink) const;

  const uint32_t owner_;
  std::vector<std::string> tokens_;
  const bool ignore_merges_;
  const BpeUnknown unknown_;
  std::array<int32_t, 256> byte_ids_;  // -1: no such token
  bool has_all_bytes_ = true;
  std::vector<int32_t> token_slots_;  // open addressing by hash of the bytes; -1 free
  std::vector<Pair> pair_slots_;      // open addressing by hash of the key
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_BPE_H_

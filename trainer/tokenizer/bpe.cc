#include "trainer/tokenizer/bpe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace cria::trainer {
namespace {

constexpr size_t kShortPiece = 64;
constexpr uint32_t kNoRank = ~uint32_t{0};

// Marks the entries of a thread's cache, which outlives any Bpe. Wraps after 2^32 tokenizers.
uint32_t NextOwner() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// At least twice as many slots as entries, a power of two.
size_t NumSlots(size_t entries) { return std::bit_ceil(std::max<size_t>(16, 2 * entries)); }

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t MixPair(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ (key >> 32);
}

}  // namespace

Bpe::Bpe(std::vector<std::string> tokens, const std::vector<BpeMerge>& merges, bool ignore_merges,
         const BpeUnknown& unknown)
    : owner_(NextOwner()),
      tokens_(std::move(tokens)),
      ignore_merges_(ignore_merges),
      unknown_(unknown) {
  token_slots_.assign(NumSlots(tokens_.size()), -1);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    size_t slot = Hash64(tokens_[id]) & (token_slots_.size() - 1);
    while (token_slots_[slot] >= 0) slot = (slot + 1) & (token_slots_.size() - 1);
    token_slots_[slot] = static_cast<int32_t>(id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = Find({&c, 1});
    if (byte_ids_[byte] < 0) has_all_bytes_ = false;
  }

  pair_slots_.assign(NumSlots(merges.size()), Pair{});
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      CRIA_CHECK(id >= 0 && id < num_tokens, "merge ", rank, " names token ", id);
    }
    const uint64_t key = PairKey(merge.left, merge.right);
    size_t slot = MixPair(key) & (pair_slots_.size() - 1);
    while (pair_slots_[slot].key != kNoPair && pair_slots_[slot].key != key) {
      slot = (slot + 1) & (pair_slots_.size() - 1);
    }
    pair_slots_[slot] = {key, static_cast<uint32_t>(rank), merge.result};
  }
}

int32_t Bpe::Find(std::string_view bytes) const {
  size_t slot = Hash64(bytes) & (token_slots_.size() - 1);
  while (token_slots_[slot] >= 0) {
    if (tokens_[token_slots_[slot]] == bytes) return token_slots_[slot];
    slot = (slot + 1) & (token_slots_.size() - 1);
  }
  return -1;
}

const Bpe::Pair* Bpe::FindPair(int32_t left, int32_t right) const {
  const uint64_t key = PairKey(left, right);
  size_t slot = MixPair(key) & (pair_slots_.size() - 1);
  while (true) {
    const Pair& pair = pair_slots_[slot];
    if (pair.key == key) return &pair;
    if (pair.key == kNoPair) return nullptr;
    slot = (slot + 1) & (pair_slots_.size() - 1);
  }
}

Bpe::CacheEntry* Bpe::ThreadCache() {
  thread_local const std::unique_ptr<CacheEntry[]> cache(new CacheEntry[kCacheEntries]);
  return cache.get();
}

// False when the piece has more tokens than an entry holds.
bool Bpe::Fill(std::string_view piece, const Key& key, CacheEntry* entry) const {
  std::vector<int32_t> ids;
  {
    IdSink sink(&ids);
    EncodeUncached(piece, &sink);
  }
  if (ids.size() > entry->ids.size()) return false;
  std::copy(ids.begin(), ids.end(), entry->ids.begin());
  entry->count = static_cast<int32_t>(ids.size());
  entry->key = key;
  entry->owner = owner_;
  return true;
}

void Bpe::EncodeUncached(std::string_view piece, IdSink* sink) const {
  if (ignore_merges_ || piece.size() == 1) {
    const int32_t id = Find(piece);
    if (id >= 0) {
      sink->Push(id);
      return;
    }
  }
  if (piece.size() <= kShortPiece) {
    MergeShort(piece, sink);
  } else {
    MergeLong(piece, sink);
  }
}

std::vector<int32_t> Bpe::KnownByteTokens(std::string_view piece) const {
  std::vector<int32_t> ids;
  ids.reserve(piece.size());
  bool after_unknown = false;
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      ids.push_back(id);
    } else if (unknown_.id >= 0 && !(unknown_.fuse && after_unknown)) {
      ids.push_back(unknown_.id);
    }
    after_unknown = id < 0;
  }
  return ids;
}

void Bpe::MergeShort(std::string_view piece, IdSink* sink) const {
  int32_t ids[kShortPiece];
  const Pair* merges[kShortPiece];  // merges[i]: of ids[i] and ids[i + 1]
  size_t n = piece.size();
  if (has_all_bytes_) [[likely]] {
    for (size_t i = 0; i < n; ++i) ids[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  } else {
    const std::vector<int32_t> known = KnownByteTokens(piece);
    n = known.size();
    std::copy(known.begin(), known.end(), ids);
  }
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = FindPair(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = n;
    uint32_t best_rank = kNoRank;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (merges[i] != nullptr && merges[i]->rank < best_rank) {
        best = i;
        best_rank = merges[i]->rank;
      }
    }
    if (best == n) break;
    ids[best] = merges[best]->result;
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    if (best + 2 < n) std::copy(merges + best + 2, merges + n - 1, merges + best + 1);
    --n;
    if (best > 0) merges[best - 1] = FindPair(ids[best - 1], ids[best]);
    if (best + 1 < n) merges[best] = FindPair(ids[best], ids[best + 1]);
  }
  for (size_t i = 0; i < n; ++i) sink->Push(ids[i]);
}

// Positions are those of the first bytes, linked left and right. The heap has, for each pair of
// neighbours that can merge, rank << 32 | position; what has changed since it was pushed is found
// stale when popped.
void Bpe::MergeLong(std::string_view piece, IdSink* sink) const {
  CRIA_CHECK(piece.size() < uint64_t{1} << 31, "a piece of ", piece.size(), " bytes");
  constexpr int32_t kGone = -1;
  std::vector<int32_t> id = KnownByteTokens(piece);
  const auto n = static_cast<uint32_t>(id.size());
  std::vector<uint32_t> previous(n), next(n);
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i - 1;  // of the first: beyond n
    next[i] = i + 1;
  }
  std::vector<uint64_t> initial;
  for (uint32_t i = 0; i + 1 < n; ++i) {
    const Pair* const pair = FindPair(id[i], id[i + 1]);
    if (pair != nullptr) initial.push_back(static_cast<uint64_t>(pair->rank) << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap({}, std::move(initial));

  const auto push = [&](uint32_t at) {
    const Pair* const pair = FindPair(id[at], id[next[at]]);
    if (pair != nullptr) heap.push(static_cast<uint64_t>(pair->rank) << 32 | at);
  };
  while (!heap.empty()) {
    const auto rank = static_cast<uint32_t>(heap.top() >> 32);
    const auto at = static_cast<uint32_t>(heap.top());
    heap.pop();
    const uint32_t right = next[at];
    if (id[at] == kGone || right >= n) continue;
    const Pair* const pair = FindPair(id[at], id[right]);
    if (pair == nullptr || pair->rank != rank) continue;
    id[at] = pair->result;
    id[right] = kGone;
    next[at] = next[right];
    if (next[at] < n) {
      previous[next[at]] = at;
      push(at);
    }
    if (previous[at] < n) push(previous[at]);
  }
  for (uint32_t i = 0; i < n; i = next[i]) sink->Push(id[i]);
}

}  // namespace cria::trainer

#include "trainer/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/rng.h"

namespace cria::trainer {
namespace {

std::vector<std::string> AllBytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

// Adds the token left + right and its merge; returns its id.
int32_t AddMerge(int32_t left, int32_t right, std::vector<std::string>* tokens,
                 std::vector<BpeMerge>* merges) {
  const auto id = static_cast<int32_t>(tokens->size());
  tokens->push_back((*tokens)[left] + (*tokens)[right]);
  merges->push_back({left, right, id});
  return id;
}

std::vector<int32_t> Encode(const Bpe& bpe, std::string_view piece) {
  std::vector<int32_t> ids;
  {
    IdSink sink(&ids);
    bpe.EncodePiece(piece, piece.data() + piece.size(), &sink);
  }
  return ids;
}

// The definition, as slow as it reads. Single bytes are the ids 0 to 255.
std::vector<int32_t> NaiveEncode(const std::vector<BpeMerge>& merges, std::string_view piece) {
  std::vector<int32_t> ids;
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    std::optional<size_t> best_rank, best_at;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < merges.size(); ++rank) {
        if (merges[rank].left != ids[i] || merges[rank].right != ids[i + 1]) continue;
        if (!best_rank || rank < *best_rank) {
          best_rank = rank;
          best_at = i;
        }
      }
    }
    if (!best_rank) return ids;
    ids[*best_at] = merges[*best_rank].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(*best_at) + 1);
  }
}

// Random merges over the letters a to d, so that short texts merge in many ways.
struct RandomVocabulary {
  explicit RandomVocabulary(uint64_t seed) : tokens(AllBytes()) {
    const Rng rng(seed, StreamOf("vocabulary"));
    std::vector<int32_t> used = {'a', 'b', 'c', 'd'};
    for (uint64_t i = 0; used.size() < 24; ++i) {
      const int32_t left = used[rng.Below(2 * i, used.size())];
      const int32_t right = used[rng.Below(2 * i + 1, used.size())];
      const std::string bytes = tokens[left] + tokens[right];
      if (std::find(tokens.begin(), tokens.end(), bytes) != tokens.end()) continue;
      used.push_back(AddMerge(left, right, &tokens, &merges));
    }
  }
  std::vector<std::string> tokens;
  std::vector<BpeMerge> merges;
};

std::string RandomLetters(uint64_t seed, size_t length) {
  const Rng rng(seed, StreamOf("letters"));
  std::string text(length, 'a');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + rng.Below(i, 4));
  return text;
}

TEST(BpeTest, MergesTheLowestRankFirstAndOfEqualsTheLeftmost) {
  std::vector<std::string> tokens = AllBytes();
  std::vector<BpeMerge> merges;
  const int32_t bc = AddMerge('b', 'c', &tokens, &merges);
  const int32_t ab = AddMerge('a', 'b', &tokens, &merges);
  const int32_t aa = AddMerge('a', 'a', &tokens, &merges);
  const Bpe bpe(tokens, merges, false);
  EXPECT_EQ(Encode(bpe, "abc"), (std::vector<int32_t>{'a', bc}));
  EXPECT_EQ(Encode(bpe, "abab"), (std::vector<int32_t>{ab, ab}));
  EXPECT_EQ(Encode(bpe, "aaa"), (std::vector<int32_t>{aa, 'a'}));
  EXPECT_EQ(Encode(bpe, "x"), (std::vector<int32_t>{'x'}));
  EXPECT_EQ(bpe.Find("bc"), bc);
  EXPECT_EQ(bpe.Find("cb"), -1);
}

// A token that merges alone don't reach: "abc" from (ab, c), but b and c merge first.
TEST(BpeTest, IgnoreMergesTakesAWholePieceAsItsToken) {
  std::vector<std::string> tokens = AllBytes();
  std::vector<BpeMerge> merges;
  const int32_t bc = AddMerge('b', 'c', &tokens, &merges);
  const int32_t ab = AddMerge('a', 'b', &tokens, &merges);
  const int32_t abc = AddMerge(ab, 'c', &tokens, &merges);
  EXPECT_EQ(Encode(Bpe(tokens, merges, true), "abc"), (std::vector<int32_t>{abc}));
  EXPECT_EQ(Encode(Bpe(tokens, merges, false), "abc"), (std::vector<int32_t>{'a', bc}));
}

// Lengths around the limits of the cache (15), of the scan (64) and of an entry's ids (10).
TEST(BpeTest, ShortAndLongPathsEqualTheDefinition) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const RandomVocabulary vocabulary(seed);
    const Bpe bpe(vocabulary.tokens, vocabulary.merges, false);
    for (const size_t length : {1, 2, 3, 7, 8, 9, 14, 15, 16, 17, 63, 64, 65, 66, 200}) {
      const std::string piece = RandomLetters(seed * 1000 + length, length);
      const std::vector<int32_t> want = NaiveEncode(vocabulary.merges, piece);
      for (int repeat = 0; repeat < 2; ++repeat) {  // the second comes from the cache
        ASSERT_EQ(Encode(bpe, piece), want) << "seed " << seed << " piece " << piece;
      }
    }
  }
}

// The cache is the thread's, not the tokenizer's: entries of another one must not be taken.
TEST(BpeTest, TwoTokenizersOnOneThreadDoNotMix) {
  const RandomVocabulary one(1), two(2);
  const Bpe first(one.tokens, one.merges, false);
  const Bpe second(two.tokens, two.merges, false);
  for (uint64_t i = 0; i < 300; ++i) {
    const std::string piece = RandomLetters(i % 50, 1 + i % 15);
    ASSERT_EQ(Encode(first, piece), NaiveEncode(one.merges, piece)) << piece;
    ASSERT_EQ(Encode(second, piece), NaiveEncode(two.merges, piece)) << piece;
  }
}

// Pieces that differ only beyond their end, or by zero bytes, are different pieces.
TEST(BpeTest, TheCacheTellsPiecesOfDifferentLengthApart) {
  const Bpe bpe(AllBytes(), {}, false);
  const std::string text("a\0\0bcdefghijklmnopqrstuvwxyz", 28);
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (size_t length = 1; length <= 12 && begin + length <= text.size(); ++length) {
      std::vector<int32_t> ids;
      {
        IdSink sink(&ids);
        bpe.EncodePiece(std::string_view(text).substr(begin, length), text.data() + text.size(),
                        &sink);
      }
      ASSERT_EQ(ids.size(), length);
      for (size_t i = 0; i < length; ++i) ASSERT_EQ(ids[i], text[begin + i]);
    }
  }
}

// With merges aa, aaaa, ... the count of tokens is known. n^2 steps would be 10^12.
TEST(BpeTest, MergesAMegabyteOfOneCharacter) {
  std::vector<std::string> tokens = AllBytes();
  std::vector<BpeMerge> merges;
  int32_t longest = 'a';
  for (int i = 0; i < 7; ++i) longest = AddMerge(longest, longest, &tokens, &merges);
  const Bpe bpe(tokens, merges, true);
  const std::vector<int32_t> ids = Encode(bpe, std::string((1 << 20) + 1, 'a'));
  ASSERT_EQ(ids.size(), (1u << 20) / 128 + 1);
  EXPECT_EQ(ids.front(), longest);
  EXPECT_EQ(ids.back(), 'a');
}

TEST(BpeTest, ALaterMergeOfTheSamePairReplacesTheEarlier) {
  std::vector<std::string> tokens = AllBytes();
  std::vector<BpeMerge> merges;
  const int32_t ab = AddMerge('a', 'b', &tokens, &merges);
  const int32_t bc = AddMerge('b', 'c', &tokens, &merges);
  merges.push_back({'a', 'b', ab});
  EXPECT_EQ(Encode(Bpe(tokens, merges, false), "abc"), (std::vector<int32_t>{'a', bc}));
}

TEST(IdSinkTest, KeepsOrderAcrossBlocks) {
  std::vector<int32_t> ids = {-1};
  std::vector<int32_t> want = ids;
  {
    IdSink sink(&ids);
    for (int32_t i = 0; i < 5000; ++i) {
      if (i % 3 == 0) {
        const int32_t block[IdSink::kBlock] = {i, -i, i, -i, i, -i, i, -i, i, -i};
        sink.PushBlock(block, i % 11);
        want.insert(want.end(), block, block + i % 11);
      } else {
        sink.Push(i);
        want.push_back(i);
      }
    }
  }
  EXPECT_EQ(ids, want);
}

}  // namespace
}  // namespace cria::trainer

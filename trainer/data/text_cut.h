// Where a long text may be cut so that encoding the two sides gives the tokens of the whole.
//
// Called by trainer/data/document_source.h, which hands out long documents in bounded parts, and by
// trainer/data/prepare.h, which splits a single document into training and validation text.
//
// A tokenizer with Llama 3's pre-tokenizer expression works piece by piece, left to right, without
// looking back. So a cut where a piece ends anyway, whatever follows, changes nothing. Two such
// places are easy to see:
//   - after a run of newlines, before a character that is no white space: "end.\n\n|The";
//   - after an ASCII letter or digit, before a space: "word| word".
// Both hold for GPT-2's expression too, save that GPT-2's pieces keep a last newline apart. Text
// without any such place within reach (one long word, Chinese on one line) is cut between two
// characters; that can change the tokens next to the cut, at most once a part.
// Thread-safe.

#ifndef CRIA_TRAINER_DATA_TEXT_CUT_H_
#define CRIA_TRAINER_DATA_TEXT_CUT_H_

#include <cstddef>
#include <string_view>

namespace cria::trainer {

// How far before the limit an exact place is looked for.
inline constexpr size_t kCutReachBytes = size_t{64} << 10;

// The best place c to cut `text`, 0 < c <= limit: text[0, c) and text[c, end). Newlines first,
// then spaces, then a character's edge, then `limit` itself (bytes that are no UTF-8). Requires
// 0 < limit < text.size(), so that the byte after the cut is known. Cost: kCutReachBytes read.
size_t FindCut(std::string_view text, size_t limit);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_TEXT_CUT_H_

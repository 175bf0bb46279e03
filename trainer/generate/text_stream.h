// The text of one generation as its tokens come: valid UTF-8, whole characters, and cut before a
// stop string.
//
//   TextStream text(&tokenizer, {.stop = {"\n\n"}});
//   for (int32_t id : generated) {
//     std::fputs(text.Push(id).c_str(), stdout);
//     if (text.stopped()) break;
//   }
//   std::fputs(text.Finish().c_str(), stdout);
//
// What Push and Finish return, one after another, is the text. Bytes are held back while they are
// the beginning of a character, and characters while they may be the beginning of a stop string, so
// nothing is ever taken back. A stop string may be spread over tokens; which one stops, and where,
// does not depend on how the text was cut into tokens: the one that ends first, and of those that
// end there the longest. Bytes that can belong to no character become U+FFFD, one for each maximal
// beginning of a character, as Python's and Hugging Face's decoders do.
// Single-threaded. The tokenizer outlives the stream.

#ifndef CRIA_TRAINER_GENERATE_TEXT_STREAM_H_
#define CRIA_TRAINER_GENERATE_TEXT_STREAM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/streaming_decoder.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {

// Finds the first of several strings in a text that comes in parts. None may be empty.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  // What of the text so far is certain to come before a stop string and was not returned yet.
  std::string Push(std::string_view text);
  // The rest, when no more text comes.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  bool CutAtStop(size_t first_new);
  size_t HeldSuffix() const;

  const std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

struct TextStreamOptions {
  std::vector<std::string> stop = {};
  bool skip_special = true;
};

class TextStream {
 public:
  TextStream(const Tokenizer* tokenizer, const TextStreamOptions& options)
      : decoder_(tokenizer, options.skip_special), matcher_(options.stop) {}

  // The text that `id` makes certain; may be empty. Nothing more comes once stopped().
  std::string Push(int32_t id) { return matcher_.Push(ReplaceInvalidUtf8(decoder_.Push(id))); }
  std::string Finish();
  bool stopped() const { return matcher_.stopped(); }

 private:
  StreamingDecoder decoder_;
  StopMatcher matcher_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_GENERATE_TEXT_STREAM_H_

// Text into a prepared data folder: tokenizer.json, token shards, manifest.json.
//
// Called by `cria data prepare` and by the trainer before its first step.
//
//   PrepareOptions options;                       // no input: the King James Bible
//   options.source.inputs = {"books/", "wiki.jsonl.zst"};
//   options.out_dir = "data/books";
//   CRIA_ASSIGN_OR_RETURN(const PrepareResult result, PrepareData(options));
//   CRIA_ASSIGN_OR_RETURN(const TokenDataset train, TokenDataset::Open("data/books", "train"));
//
//   inputs --> documents --> 1. survey: does each split get a document? a sample for the tokenizer
//                        --> 2. encode on all threads, in order --> train_*.bin, val_*.bin
//                                                               --> manifest.json, last
//
// A document is stored as BOS t1 ... tn EOS. Which documents are held out:
// trainer/data/val_split.h. Memory is flat: two megabytes of text a thread, and the tokenizer's
// sample. The result depends on the documents and the options alone, not on threads or machine.
//
// The folder is complete when manifest.json is there, and only then: it is removed first and
// written last. A folder whose manifest was made with the same options from the same files (path,
// size, time of change; standard input: content) is left as it is. One made otherwise is replaced
// only with `force`.
//
// Errors: InvalidArgument for options and for input that is no text (document_source.h), an empty
// corpus, a tokenizer without BOS and EOS; AlreadyExists for a folder with other data;
// FailedPrecondition while another process prepares the same folder; Cancelled after `*stop`;
// those of the disk. After an error the folder has no manifest and no shards.
// Single-threaded; it uses all threads itself. Cost: reads the input twice, encodes it once.

#ifndef CRIA_TRAINER_DATA_PREPARE_H_
#define CRIA_TRAINER_DATA_PREPARE_H_

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "trainer/data/bible.h"
#include "trainer/data/document_source.h"
#include "trainer/data/manifest.h"
#include "trainer/data/shard.h"

namespace cria::trainer {

inline constexpr char kTokenizerFile[] = "tokenizer.json";

struct PrepareOptions {
  SourceOptions source;  // spool_dir and stop are set from the fields below; no inputs: `bible`
  BibleOptions bible;
  std::string out_dir;

  std::string tokenizer_path;  // a tokenizer.json; empty: train one on the corpus
  int64_t vocab_size = 4096;   // of a trained one
  int64_t tokenizer_sample_bytes = int64_t{64} << 20;

  double val_fraction = 0.02;  // of the documents; in [0, 1)
  uint64_t seed = 0;           // of the split and of the sample
  int64_t shard_tokens = kShardTokensDefault;
  std::optional<TokenType> token_type;  // default: the smallest that fits the vocabulary

  bool force = false;                       // make it again, whatever is there
  std::FILE* progress = nullptr;            // null: silent
  Clock* clock = RealClock();               // of the progress bar
  const std::atomic<bool>* stop = nullptr;  // set by a signal handler
};

struct PrepareResult {
  Manifest manifest;
  bool is_reused = false;  // the folder was there and matched
};

StatusOr<PrepareResult> PrepareData(const PrepareOptions& options);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_PREPARE_H_

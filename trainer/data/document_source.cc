#include "trainer/data/document_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/brief.h"
#include "base/file.h"
#include "base/json.h"
#include "trainer/data/byte_source.h"
#include "trainer/data/text_cut.h"

namespace cria::trainer {
namespace {

constexpr size_t kReadBytes = size_t{128} << 10;
constexpr int kFolderDepthMax = 64;

// A window onto a file's bytes that grows at its end and shrinks at its front.
class Window {
 public:
  explicit Window(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

  // Makes at least `bytes` bytes visible, or all that are left.
  Status Fill(size_t bytes) {
    while (view().size() < bytes && !at_end_) {
      if (begin_ > 0) {
        buffer_.erase(0, begin_);
        begin_ = 0;
      }
      const size_t old_size = buffer_.size();
      buffer_.resize(old_size + kReadBytes);
      const StatusOr<size_t> count = source_->Read({buffer_.data() + old_size, kReadBytes});
      buffer_.resize(old_size + (count.ok() ? *count : 0));
      CRIA_RETURN_IF_ERROR(count.status());
      at_end_ = *count == 0;
    }
    return OkStatus();
  }

  std::string_view view() const { return std::string_view(buffer_).substr(begin_); }

  void Drop(size_t bytes) {
    begin_ += bytes;
    offset_ += bytes;
  }

  // The file's byte (after decompression) at which view() starts.
  uint64_t offset() const { return offset_; }
  uint64_t input_bytes() const { return source_->input_bytes(); }

 private:
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;
  uint64_t offset_ = 0;
  bool at_end_ = false;
};

// The documents of one file; `document` is left to the caller.
class FileReader {
 public:
  FileReader(const InputFile& file, const SourceOptions& options, Window window)
      : file_(file), options_(options), window_(std::move(window)) {}
  virtual ~FileReader() = default;
  virtual StatusOr<bool> Next(TextPart* part) = 0;
  uint64_t input_bytes() const { return window_.input_bytes(); }

 protected:
  const InputFile& file_;
  const SourceOptions& options_;
  Window window_;
};

class TextReader : public FileReader {
 public:
  using FileReader::FileReader;

  StatusOr<bool> Next(TextPart* part) override {
    const std::string& separator = options_.split_on;
    // Any separator that starts at or before part_bytes is visible as a whole.
    CRIA_RETURN_IF_ERROR(window_.Fill(options_.part_bytes + separator.size() + 1));
    const std::string_view view = window_.view();
    if (view.empty() && at_document_start_) return false;

    const size_t separator_at = separator.empty() ? view.npos : view.find(separator);
    part->is_first = at_document_start_;
    if (separator_at <= options_.part_bytes) {
      CRIA_RETURN_IF_ERROR(Take(separator_at, part));
      window_.Drop(separator.size());
      part->is_last = true;
    } else if (view.size() <= options_.part_bytes) {
      CRIA_RETURN_IF_ERROR(Take(view.size(), part));
      part->is_last = true;
    } else {
      CRIA_RETURN_IF_ERROR(Take(FindCut(view, options_.part_bytes), part));
      part->is_last = false;
    }
    at_document_start_ = part->is_last;
    return true;
  }

 private:
  Status Take(size_t bytes, TextPart* part) {
    part->text.assign(window_.view().substr(0, bytes));
    const size_t nul_at = options_.allow_binary ? part->text.npos : part->text.find('\0');
    if (nul_at != part->text.npos) {
      return InvalidArgumentError("read ", file_.name, ": byte ", window_.offset() + nul_at,
                                  " is NUL, so this is no text; --allow-binary takes it anyway");
    }
    window_.Drop(bytes);
    return OkStatus();
  }

  bool at_document_start_ = true;
};

// Takes one string out of a JSON object without building the rest of it.
class FieldFinder : public nlohmann::json_sax<Json> {
 public:
  FieldFinder(const std::string& field, std::string* out) : field_(field), out_(out) {}

  bool found() const { return found_; }
  // Why the line is no good; empty when it is.
  const std::string& problem() const { return problem_; }

  bool null() override { return Other("null"); }
  bool boolean(bool) override { return Other("a boolean"); }
  bool number_integer(number_integer_t) override { return Other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return Other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return Other("a number"); }
  bool binary(binary_t&) override { return Other("binary"); }
  bool string(string_t& value) override {
    if (!is_wanted_) return Other("a string");
    out_->swap(value);
    is_wanted_ = false;
    found_ = true;
    return true;
  }
  bool key(string_t& name) override {
    is_wanted_ = depth_ == 1 && name == field_;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ > 0 && !Other("an object")) return false;
    ++depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (!Other("a list")) return false;
    ++depth_;
    return true;
  }
  bool end_object() override { return End(); }
  bool end_array() override { return End(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ..."
    const std::string_view what = error.what();
    const size_t colon = what.find(": ");
    // It quotes what it read last, be that megabytes.
    problem_ = Brief(what.substr(colon == what.npos ? 0 : colon + 2), 200);
    return false;
  }

 private:
  bool Other(std::string_view what) {
    if (depth_ == 0) problem_ = StrCat("is ", what, ", not an object");
    if (is_wanted_) problem_ = StrCat("the field \"", field_, "\" is ", what, ", not a string");
    return problem_.empty();
  }
  bool End() {
    --depth_;
    return true;
  }

  const std::string& field_;
  std::string* const out_;
  int depth_ = 0;
  bool is_wanted_ = false;  // the next value belongs to the field
  bool found_ = false;
  std::string problem_;
};

class JsonlReader : public FileReader {
 public:
  using FileReader::FileReader;

  StatusOr<bool> Next(TextPart* part) override {
    const bool is_first = text_at_ == 0;
    if (is_first) {
      CRIA_ASSIGN_OR_RETURN(const bool has_line, ReadLine());
      if (!has_line) return false;
    }
    const std::string_view rest = std::string_view(text_).substr(text_at_);
    part->is_first = is_first;
    part->is_last = rest.size() <= options_.part_bytes;
    part->text.assign(
        rest.substr(0, part->is_last ? rest.size() : FindCut(rest, options_.part_bytes)));
    text_at_ = part->is_last ? 0 : text_at_ + part->text.size();
    return true;
  }

 private:
  // Puts the next line's field into text_; false at the end.
  StatusOr<bool> ReadLine() {
    for (;;) {
      CRIA_ASSIGN_OR_RETURN(const size_t bytes, FindLineEnd());
      const std::string_view view = window_.view();
      if (view.empty()) return false;
      ++line_;
      const std::string_view line = view.substr(0, bytes);
      const bool is_blank = line.find_first_not_of(" \t\r") == line.npos;
      if (!is_blank) CRIA_RETURN_IF_ERROR(ParseLine(line));
      window_.Drop(std::min(bytes + 1, view.size()));
      if (!is_blank) return true;
    }
  }

  // The visible line's length, its newline not counted.
  StatusOr<size_t> FindLineEnd() {
    for (size_t searched = 0;;) {
      const std::string_view view = window_.view();
      const size_t end = view.find('\n', searched);
      if (end != view.npos) return end;
      searched = view.size();
      if (searched > kJsonLineBytesMax) {
        return ResourceExhaustedError("read ", file_.name, ":", line_ + 1, ": the line is over ",
                                      HumanBytes(kJsonLineBytesMax), " long");
      }
      CRIA_RETURN_IF_ERROR(window_.Fill(searched + 1));
      if (window_.view().size() == searched) return searched;
    }
  }

  Status ParseLine(std::string_view line) {
    FieldFinder finder(options_.field, &text_);
    Json::sax_parse(line, &finder);
    const std::string where = StrCat("read ", file_.name, ":", line_, ": ");
    if (!finder.problem().empty()) return InvalidArgumentError(where, finder.problem());
    if (!finder.found()) {
      return InvalidArgumentError(where, "no field \"", options_.field, "\" (--field names it)");
    }
    if (!options_.allow_binary && text_.find('\0') != text_.npos) {
      return InvalidArgumentError(where, "the text holds a NUL character, so this is no text; ",
                                  "--allow-binary takes it anyway");
    }
    return OkStatus();
  }

  uint64_t line_ = 0;
  std::string text_;
  size_t text_at_ = 0;  // what of text_ was handed out
};

bool IsJsonl(const InputFile& file, TextFormat format) {
  if (format != TextFormat::kAuto) return format == TextFormat::kJsonl;
  std::string_view name = file.name;
  if (name.ends_with(".zst")) name.remove_suffix(4);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

class CorpusSource : public DocumentSource {
 public:
  CorpusSource(SourceOptions options, std::vector<InputFile> files)
      : options_(std::move(options)), files_(std::move(files)) {
    for (const InputFile& file : files_) total_ += file.bytes;
  }

  ~CorpusSource() override {
    for (const InputFile& file : files_) {
      if (file.is_spooled) unlink(file.path.c_str());
    }
  }

  StatusOr<bool> Next(TextPart* part) override {
    while (file_ < files_.size()) {
      if (reader_ == nullptr) CRIA_RETURN_IF_ERROR(OpenFile());
      CRIA_ASSIGN_OR_RETURN(const bool has_part, reader_->Next(part));
      if (!has_part) {
        done_ += files_[file_].bytes;
        reader_ = nullptr;
        ++file_;
        continue;
      }
      if (part->is_first && part->is_last && part->text.empty()) continue;
      part->document = num_documents_;
      if (part->is_last) ++num_documents_;
      return true;
    }
    return false;
  }

  void Rewind() override {
    reader_ = nullptr;
    file_ = 0;
    done_ = 0;
    num_documents_ = 0;
  }

  uint64_t input_bytes() const override {
    return done_ + (reader_ == nullptr ? 0 : reader_->input_bytes());
  }
  uint64_t input_bytes_total() const override { return total_; }

 private:
  Status OpenFile() {
    const InputFile& file = files_[file_];
    CRIA_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes, OpenBytes(file.path));
    Window window(std::move(bytes));
    if (IsJsonl(file, options_.format)) {
      reader_ = std::make_unique<JsonlReader>(file, options_, std::move(window));
    } else {
      reader_ = std::make_unique<TextReader>(file, options_, std::move(window));
    }
    return OkStatus();
  }

  const SourceOptions options_;
  const std::vector<InputFile> files_;
  uint64_t total_ = 0;

  size_t file_ = 0;                     // index of the file in progress
  std::unique_ptr<FileReader> reader_;  // of that file, null before it is opened
  uint64_t done_ = 0;                   // bytes of the files before it
  uint64_t num_documents_ = 0;          // complete ones so far
};

class MemorySource : public DocumentSource {
 public:
  explicit MemorySource(std::vector<std::string> documents) : documents_(std::move(documents)) {
    std::erase_if(documents_, [](const std::string& text) { return text.empty(); });
    for (const std::string& text : documents_) total_ += text.size();
  }

  StatusOr<bool> Next(TextPart* part) override {
    if (next_ == documents_.size()) return false;
    *part = {.document = next_, .is_first = true, .is_last = true, .text = documents_[next_]};
    done_ += part->text.size();
    ++next_;
    return true;
  }

  void Rewind() override { next_ = done_ = 0; }
  uint64_t input_bytes() const override { return done_; }
  uint64_t input_bytes_total() const override { return total_; }

 private:
  std::vector<std::string> documents_;
  uint64_t total_ = 0;
  uint64_t next_ = 0;
  uint64_t done_ = 0;
};

InputFile FileOf(const std::string& path, const struct stat& info) {
  return {
      .path = path,
      .name = path,
      .bytes = static_cast<uint64_t>(info.st_size),
      .modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + int64_t{info.st_mtim.tv_nsec}};
}

bool IsSameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Adds the files below `path`, those in the folder `skipped` left out.
Status WalkFolder(const std::string& path, int depth, const struct stat& skipped,
                  std::vector<InputFile>* files) {
  if (depth > kFolderDepthMax) {
    return InvalidArgumentError("list ", path, ": folders deeper than ", kFolderDepthMax);
  }
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(path));
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    const std::string child = JoinPath(path, name);
    struct stat link_info;
    struct stat info;
    if (lstat(child.c_str(), &link_info) != 0 || stat(child.c_str(), &info) != 0) {
      return ErrnoError(errno, StrCat("open ", child));
    }
    if (S_ISREG(info.st_mode)) files->push_back(FileOf(child, info));
    // A link to a folder may lead back up.
    if (S_ISDIR(link_info.st_mode) && !IsSameFile(info, skipped)) {
      CRIA_RETURN_IF_ERROR(WalkFolder(child, depth + 1, skipped, files));
    }
  }
  return OkStatus();
}

// Copies a pipe to disk, because it can be read only once.
StatusOr<InputFile> Spool(const std::string& path, size_t index, const SourceOptions& options) {
  InputFile file = {.path = JoinPath(options.spool_dir, StrCat(".spool_", getpid(), "_", index)),
                    .name = path == "-" ? "standard input" : path,
                    .is_spooled = true};
  const int fd = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, StrCat("open ", path));
  Status status = SpoolToFile(fd, file.path, options.stop);
  if (fd != STDIN_FILENO) close(fd);
  if (status.ok()) {
    const StatusOr<uint64_t> bytes = FileSize(file.path);
    status = bytes.status();
    if (bytes.ok()) file.bytes = *bytes;
  }
  if (!status.ok()) {
    unlink(file.path.c_str());
    return status;
  }
  return file;
}

Status AddInput(const std::string& input, const SourceOptions& options,
                std::vector<InputFile>* files) {
  struct stat info;
  if (input != "-" && stat(input.c_str(), &info) != 0) {
    return ErrnoError(errno, StrCat("open ", input));
  }
  if (input != "-" && S_ISREG(info.st_mode)) {
    files->push_back(FileOf(input, info));
  } else if (input != "-" && S_ISDIR(info.st_mode)) {
    const size_t old_size = files->size();
    // An output folder inside the input is no input.
    struct stat spool_info = {};
    if (stat(options.spool_dir.c_str(), &spool_info) != 0) spool_info = {};
    CRIA_RETURN_IF_ERROR(WalkFolder(input, 0, spool_info, files));
    if (files->size() == old_size) return InvalidArgumentError("list ", input, ": no file in it");
  } else {
    CRIA_ASSIGN_OR_RETURN(InputFile spooled, Spool(input, files->size(), options));
    files->push_back(std::move(spooled));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<InputFile>> ListInputFiles(const SourceOptions& options) {
  std::vector<InputFile> files;
  for (const std::string& input : options.inputs) {
    const Status status = AddInput(input, options, &files);
    if (status.ok()) continue;
    for (const InputFile& file : files) {
      if (file.is_spooled) unlink(file.path.c_str());
    }
    return status;
  }
  return files;
}

std::unique_ptr<DocumentSource> OpenDocuments(const SourceOptions& options,
                                              std::vector<InputFile> files) {
  return std::make_unique<CorpusSource>(options, std::move(files));
}

StatusOr<std::unique_ptr<DocumentSource>> OpenDocuments(const SourceOptions& options) {
  CRIA_ASSIGN_OR_RETURN(std::vector<InputFile> files, ListInputFiles(options));
  return OpenDocuments(options, std::move(files));
}

std::unique_ptr<DocumentSource> DocumentsInMemory(std::vector<std::string> documents) {
  return std::make_unique<MemorySource>(std::move(documents));
}

}  // namespace cria::trainer

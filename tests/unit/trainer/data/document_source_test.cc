// trainer/data/document_source.h: every kind of input, cut or not, gives the same documents;
// damage and what is no text are errors with file and line.

#include "trainer/data/document_source.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <thread>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/data/test_folder.h"
#include "trainer/data/byte_source.h"

namespace cria::trainer {
namespace {

std::string Compress(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

// All documents, put together from their parts, which are checked on the way.
StatusOr<std::vector<std::string>> ReadAll(DocumentSource* source, size_t part_bytes) {
  std::vector<std::string> documents;
  TextPart part;
  bool is_inside = false;
  for (;;) {
    CRIA_ASSIGN_OR_RETURN(const bool has_part, source->Next(&part));
    if (!has_part) break;
    EXPECT_EQ(part.is_first, !is_inside);
    EXPECT_LE(part.text.size(), part_bytes);
    if (part.is_first) documents.emplace_back();
    EXPECT_EQ(part.document + 1, documents.size());
    documents.back() += part.text;
    is_inside = !part.is_last;
  }
  EXPECT_FALSE(is_inside);
  EXPECT_EQ(source->input_bytes(), source->input_bytes_total());
  return documents;
}

StatusOr<std::vector<std::string>> ReadAll(const SourceOptions& options) {
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<DocumentSource> source, OpenDocuments(options));
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> first,
                        ReadAll(source.get(), options.part_bytes));
  source->Rewind();
  const StatusOr<std::vector<std::string>> second = ReadAll(source.get(), options.part_bytes);
  EXPECT_EQ(first, second.value());
  return first;
}

class DocumentSourceTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = JoinPath(dir_, name);
    EXPECT_TRUE(MakeDirs(DirName(path)).ok());
    EXPECT_TRUE(WriteFileAtomic(path, bytes).ok());
    return path;
  }

  const std::string dir_ =
      MakeTestFolder(testing::UnitTest::GetInstance()->current_test_info()->name());
};

using Documents = std::vector<std::string>;

TEST_F(DocumentSourceTest, ATextFileIsADocument) {
  const std::string a = Write("a.txt", "one\ntwo\n");
  const std::string b = Write("b.md", "x");
  const std::string empty = Write("c.txt", "");
  EXPECT_EQ(ReadAll({.inputs = {a, empty, b}}).value(), (Documents{"one\ntwo\n", "x"}));
}

TEST_F(DocumentSourceTest, FoldersAreWalkedInOrder) {
  Write("d/b/2.txt", "2");
  Write("d/a.txt", "a");
  Write("d/b/1.jsonl", "{\"text\": \"1\"}\n");
  Write("d/.hidden", "no");
  Write("d/c.txt.zst", Compress("c"));
  EXPECT_EQ(ReadAll({.inputs = {dir_ + "/d"}}).value(), (Documents{"a", "1", "2", "c"}));
}

TEST_F(DocumentSourceTest, ALinkToTheParentIsNotFollowed) {
  Write("d/a.txt", "a");
  ASSERT_EQ(symlink("..", (dir_ + "/d/up").c_str()), 0);
  EXPECT_EQ(ReadAll({.inputs = {dir_ + "/d"}}).value(), (Documents{"a"}));
}

TEST_F(DocumentSourceTest, SeparatorsCutDocumentsWhereverPartsEnd) {
  const std::string path = Write("a.txt", "one\fsecond text\f\fthree\f");
  const std::string path2 = Write("b.txt", "one--second text----three--");
  for (const size_t part_bytes : {1, 2, 3, 5, 8, 13, 1000}) {
    const Documents want = {"one", "second text", "three"};
    EXPECT_EQ(ReadAll({.inputs = {path}, .split_on = "\f", .part_bytes = part_bytes}).value(),
              want);
    EXPECT_EQ(ReadAll({.inputs = {path2}, .split_on = "--", .part_bytes = part_bytes}).value(),
              want);
  }
}

TEST_F(DocumentSourceTest, LongDocumentsComeInParts) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += StrCat("word", i, i % 11 == 0 ? "\n" : " ");
  const std::string path = Write("a.txt", text);
  const std::string packed = Write("b.zst", Compress(text));
  for (const size_t part_bytes : {1000, 4096, 1 << 18, 1 << 20}) {
    EXPECT_EQ(ReadAll({.inputs = {path, packed}, .part_bytes = part_bytes}).value(),
              (Documents{text, text}));
  }
  Write("c.jsonl", StrCat("{\"text\": \"", std::string(10000, 'x'), "\"}"));
  EXPECT_EQ(ReadAll({.inputs = {dir_ + "/c.jsonl"}, .part_bytes = 1000}).value(),
            (Documents{std::string(10000, 'x')}));
}

TEST_F(DocumentSourceTest, JsonlTakesTheNamedField) {
  const std::string path = Write(
      "a.jsonl",
      "{\"id\": 1, \"body\": \"caf\\u00e9 \\ud83d\\ude00\", \"meta\": {\"body\": \"inner\"}}\n"
      "\n"
      "  \r\n"
      "{\"list\": [\"body\", {\"body\": 2}], \"body\": \"two\\nlines\"}\r\n"
      "{\"body\": \"\"}\n"
      "{\"body\": \"last\"}");
  EXPECT_EQ(ReadAll({.inputs = {path}, .field = "body"}).value(),
            (Documents{"caf\xC3\xA9 \xF0\x9F\x98\x80", "two\nlines", "last"}));
}

TEST_F(DocumentSourceTest, JsonlErrorsNameFileAndLine) {
  const struct {
    const char* line;
    const char* message;
  } cases[] = {
      {"{\"title\": \"x\"}", "no field \"text\""},
      {"{\"text\": 5}", "the field \"text\" is a number"},
      {"{\"text\": null}", "the field \"text\" is null"},
      {"{\"text\": [\"a\"]}", "the field \"text\" is a list"},
      {"[\"text\"]", "is a list, not an object"},
      {"\"text\"", "is a string, not an object"},
      {"{\"text\": \"a\"", "syntax error"},
      {"{\"text\": \"a\"} x", "syntax error"},
      {"{\"text\": \"\xff\"}", "invalid string"},
      {"{\"text\": \"a\\u0000b\"}", "NUL"},
      {"plain text", "syntax error"},
  };
  for (const auto& [line, message] : cases) {
    const std::string path = Write("a.jsonl", StrCat("{\"text\": \"good\"}\n", line, "\n"));
    const Status status = ReadAll({.inputs = {path}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << line;
    EXPECT_NE(Message(status).find(StrCat(path, ":2: ")), std::string::npos) << Message(status);
    EXPECT_NE(Message(status).find(message), std::string::npos) << Message(status);
  }
}

TEST_F(DocumentSourceTest, DeepJsonIsNoStackOverflow) {
  const std::string path = Write("a.jsonl", StrCat("{\"x\": ", std::string(3'000'000, '['), "}\n"));
  EXPECT_EQ(ReadAll({.inputs = {path}}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(DocumentSourceTest, BinaryIsRefusedUnlessAllowed) {
  const std::string path = Write("a.png", std::string("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", 16));
  const Status status = ReadAll({.inputs = {path}}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find(path + ": byte 8 is NUL"), std::string::npos) << Message(status);
  EXPECT_EQ(ReadAll({.inputs = {path}, .allow_binary = true}).value()[0].size(), 16u);

  const std::string latin1 = Write("b.txt", "caf\xE9");
  EXPECT_EQ(ReadAll({.inputs = {latin1}}).value(), (Documents{"caf\xE9"}));
}

TEST_F(DocumentSourceTest, NamesTheByteOfALateNul) {
  const std::string path = Write("a.txt", std::string(5000, 'a') + std::string(1, '\0'));
  const Status status = ReadAll({.inputs = {path}, .part_bytes = 100}).status();
  EXPECT_NE(Message(status).find("byte 5000 is NUL"), std::string::npos) << Message(status);
}

TEST_F(DocumentSourceTest, ZstdStreamsOfSeveralFramesAreOneText) {
  const std::string path = Write("a.zst", Compress("one ") + Compress("") + Compress("two"));
  EXPECT_EQ(ReadAll({.inputs = {path}}).value(), (Documents{"one two"}));
  // The name does not have to say so.
  const std::string unnamed = Write("b.txt", Compress("three"));
  EXPECT_EQ(ReadAll({.inputs = {unnamed}}).value(), (Documents{"three"}));
}

TEST_F(DocumentSourceTest, DamagedZstdIsDataLoss) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += StrCat(i, " ");
  const std::string good = Compress(text);
  for (size_t size = 0; size < good.size(); size += good.size() / 40) {
    const std::string path = Write("a.txt.zst", good.substr(0, size));
    const Status status = ReadAll({.inputs = {path}}).status();
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << size;
    ASSERT_NE(Message(status).find(path), std::string::npos) << Message(status);
  }
  const std::string path = Write("b.txt.zst", "plain text");
  EXPECT_EQ(ReadAll({.inputs = {path}}).status().code(), StatusCode::kDataLoss);
  // A frame that asks for a window of 2 GiB (zstd --long=31) must not take 2 GiB.
  const std::string window = Write("c.zst", std::string("\x28\xB5\x2F\xFD\x00\xA8\x01\x00\x00", 9));
  EXPECT_EQ(ReadAll({.inputs = {window}}).status().code(), StatusCode::kDataLoss);
}

TEST_F(DocumentSourceTest, SaysWhichInputIsMissingOrEmpty) {
  const Status missing = ReadAll({.inputs = {dir_ + "/none.txt"}}).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(Message(missing).find("none.txt"), std::string::npos);
  EXPECT_EQ(ReadAll({.inputs = {dir_}}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(DocumentSourceTest, PipesAreReadTwiceThroughACopyThatGoesAway) {
  const std::string fifo = dir_ + "/pipe";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] {
    std::FILE* const out = std::fopen(fifo.c_str(), "w");
    std::fputs("from a pipe", out);
    std::fclose(out);
  });
  const StatusOr<Documents> documents = ReadAll({.inputs = {fifo}, .spool_dir = dir_});
  writer.join();
  EXPECT_EQ(documents.value(), (Documents{"from a pipe"}));
  EXPECT_EQ(ListDir(dir_).value(), (std::vector<std::string>{"pipe"}));
}

TEST_F(DocumentSourceTest, SpoolingStopsWhileThePipeIsSilent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::atomic<bool> stop = true;
  EXPECT_EQ(SpoolToFile(ends[0], dir_ + "/spool", &stop).code(), StatusCode::kCancelled);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace cria::trainer

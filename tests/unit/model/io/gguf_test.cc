#include "model/io/gguf.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "model/io/gguf_writer.h"
#include "tests/unit/model/io/gguf_bytes.h"

namespace cria::model {
namespace {

// Value types by their numbers.
enum : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// A file with some of everything, from the writer.
std::string WrittenFile() {
  const std::string path = GgufTempPath("written.gguf");
  auto writer = GgufWriter::Create(path);
  EXPECT_TRUE(writer.ok()) << writer.status();
  (*writer)->AddString("general.architecture", "llama");
  (*writer)->AddU32("llama.block_count", 2);
  (*writer)->AddF32("llama.rope.freq_base", 500000.0f);
  (*writer)->AddBool("tokenizer.ggml.add_bos_token", true);
  (*writer)->AddStrings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "", "\xc3\xa9"});
  (*writer)->AddI32s("tokenizer.ggml.token_type", std::vector<int32_t>{1, -3});
  (*writer)->AddTensor("m", {2, 3}, GgmlType::kF32);
  (*writer)->AddTensor("v", {5}, GgmlType::kF16);
  (*writer)->AddTensor("q", {1, 32}, GgmlType::kQ8_0);
  EXPECT_TRUE((*writer)->BeginData().ok());
  std::string data;
  for (int i = 0; i < 24 + 10 + 34; ++i) data.push_back(static_cast<char>(i + 1));
  // In pieces that don't end where tensors do.
  for (size_t at = 0; at < data.size(); at += 7) {
    EXPECT_TRUE((*writer)->Append(std::string_view(data).substr(at, 7)).ok());
  }
  const Status committed = (*writer)->Commit();
  EXPECT_TRUE(committed.ok()) << committed;
  return *ReadFile(path);
}

TEST(GgufTest, ReadsWhatTheWriterWrote) {
  const auto file = GgufOf(WrittenFile());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(*file->String("general.architecture"), "llama");
  EXPECT_EQ(*file->Integer("llama.block_count"), 2);
  EXPECT_EQ(*file->Real("llama.rope.freq_base"), 500000.0);
  EXPECT_TRUE(*file->Bool("tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(*file->Strings("tokenizer.ggml.tokens"),
            (std::vector<std::string_view>{"a", "", "\xc3\xa9"}));
  EXPECT_EQ(*file->Integers("tokenizer.ggml.token_type"), (std::vector<int64_t>{1, -3}));
  ASSERT_EQ(file->tensors().size(), 3u);
  const GgufTensor* m = file->Find("m");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(m->dims[0], 3);  // fastest first in the file
  EXPECT_EQ(m->Describe(), "F32 [2, 3]");
  EXPECT_EQ(file->Data(*m)[0], 1);
  EXPECT_EQ(file->Data(*file->Find("v"))[0], 25);
  EXPECT_EQ(file->Find("v")->offset, 32u);
  EXPECT_EQ(file->Data(*file->Find("q"))[33], 68);
  EXPECT_EQ(file->Find("n"), nullptr);
}

TEST(GgufTest, WritesTheDocumentsBytes) {
  const std::string path = GgufTempPath("small.gguf");
  auto writer = GgufWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  (*writer)->AddU32("a.b", 7);
  (*writer)->AddTensor("t", {1, 2}, GgmlType::kF32);
  ASSERT_TRUE((*writer)->BeginData().ok());
  ASSERT_TRUE((*writer)->Append("12345678").ok());
  ASSERT_TRUE((*writer)->Commit().ok());
  const std::string head = GgufHeader(3, 1, 1) + GgufKey("a.b", kU32) + Le<uint32_t>(7) +
                           GgufTensorInfo("t", {2, 1}, 0, 0);
  EXPECT_EQ(*ReadFile(path), PaddedTo(PaddedTo(head, 32) + "12345678", 32));
}

TEST(GgufTest, ReadsEveryValueTypeAndVersion2) {
  const std::string bytes =
      GgufHeader(2, 0, 15) + GgufKey("u8", kU8) + Le<uint8_t>(200) + GgufKey("i8", kI8) +
      Le<int8_t>(-5) + GgufKey("u16", kU16) + Le<uint16_t>(60000) + GgufKey("i16", kI16) +
      Le<int16_t>(-300) + GgufKey("u32", kU32) + Le<uint32_t>(4000000000) + GgufKey("i32", kI32) +
      Le<int32_t>(-7) + GgufKey("f32", kF32) + Le(1e-5f) + GgufKey("no", kBool) + Le<uint8_t>(0) +
      GgufKey("text", kString) + GgufText("\xf0\x9f\x99\x82") + GgufKey("u64", kU64) +
      Le<uint64_t>(1) + GgufKey("i64", kI64) + Le<int64_t>(-1) + GgufKey("f64", kF64) + Le(0.1) +
      GgufKey("nested", kArray) + Le<uint32_t>(kArray) + Le<uint64_t>(2) + Le<uint32_t>(kU8) +
      Le<uint64_t>(2) + "ab" + Le<uint32_t>(kString) + Le<uint64_t>(1) + GgufText("x") +
      GgufKey("big", kU64) + Le(~uint64_t{0}) + GgufKey("reals", kArray) + Le<uint32_t>(kF64) +
      Le<uint64_t>(1) + Le(0.5);
  const auto file = GgufOf(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->Integer("u8"), 200);
  EXPECT_EQ(*file->Integer("i8"), -5);
  EXPECT_EQ(*file->Integer("u16"), 60000);
  EXPECT_EQ(*file->Integer("i16"), -300);
  EXPECT_EQ(*file->Integer("u32"), 4000000000);
  EXPECT_EQ(*file->Integer("i32"), -7);
  EXPECT_EQ(*file->Real("f32"), 1e-5);  // as a config says it, not 9.99999974737875e-06
  EXPECT_FALSE(*file->Bool("no"));
  EXPECT_EQ(*file->String("text"), "\xf0\x9f\x99\x82");
  EXPECT_EQ(*file->Integer("u64"), 1);
  EXPECT_EQ(*file->Integer("i64"), -1);
  EXPECT_EQ(*file->Real("f64"), 0.1);
  EXPECT_EQ(file->FindEntry("nested")->count, 2u);
  EXPECT_EQ(file->Integer("big").status().code(), StatusCode::kOutOfRange);
  EXPECT_FALSE(file->Integers("reals").ok());
}

TEST(GgufTest, NamesFileKeyAndTypesWhenAKeyIsAnother) {
  const auto file = GgufOf(WrittenFile());
  ASSERT_TRUE(file.ok());
  const std::string path = file->path();
  EXPECT_EQ(Message(file->Integer("general.architecture").status()),
            path + ": key general.architecture is string; expected an integer");
  EXPECT_EQ(Message(file->String("tokenizer.ggml.tokens").status()),
            path + ": key tokenizer.ggml.tokens is an array of 3 string; expected string");
  EXPECT_EQ(Message(file->Strings("llama.block_count").status()),
            path + ": key llama.block_count is uint32; expected an array of string");
  EXPECT_EQ(file->Bool("llama.block_count").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->Real("llama.block_count").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->Integer("missing").status().code(), StatusCode::kNotFound);
}

struct Bad {
  std::string bytes;
  const char* message;  // a part of it
};

std::string OneTensor(const std::string& info, size_t data_bytes, const std::string& keys = "",
                      uint64_t num_keys = 0, size_t alignment = 32) {
  return PaddedTo(GgufHeader(3, 1, num_keys) + keys + info, alignment) +
         std::string(data_bytes, '\1');
}

TEST(GgufTest, RefusesWhatTheFormatForbids) {
  const std::string alignment = "general.alignment";
  const std::string long_name(64, 'n');
  const std::string long_key(65536, 'k');
  std::string nested = GgufHeader(3, 0, 1) + GgufKey("deep", kArray);
  for (int i = 0; i < 1000; ++i) nested += Le<uint32_t>(kArray) + Le<uint64_t>(1);
  const std::vector<Bad> all = {
      {"", "the magic needs 4 bytes"},
      {"GGML" + Le<uint32_t>(3), "begins with \"GGML\""},
      {"GGUF" + std::string("\0\0\0\3", 4) + std::string(16, '\0'), "big-endian"},
      {GgufHeader(1, 0, 0), "version 1"},
      {GgufHeader(4, 0, 0), "version 4"},
      {GgufHeader(0, 0, 0), "version 0"},
      {GgufHeader(3, uint64_t{1} << 60, 0), "tensors can't be in the"},
      {GgufHeader(3, 0, ~uint64_t{0}), "keys can't be in the"},
      {GgufHeader(3, 0, 1) + GgufKey("", kU32) + Le<uint32_t>(1), "an empty key"},
      {GgufHeader(3, 0, 1) + GgufKey(long_key, kU8) + "1", "a key of 65536 bytes"},
      {GgufHeader(3, 0, 1) + GgufKey("a\nb", kU8) + "1", "not printable ASCII"},
      {GgufHeader(3, 0, 1) + GgufKey("a", 13) + Le<uint64_t>(1), "value type 13"},
      {GgufHeader(3, 0, 1) + GgufKey("a", kBool) + "\2", "a bool is 2"},
      {GgufHeader(3, 0, 1) + GgufKey("a", kArray) + Le<uint32_t>(kBool) + Le<uint64_t>(2) + "\1\2",
       "a bool is 2"},
      {GgufHeader(3, 0, 1) + GgufKey("a", kArray) + Le<uint32_t>(kU64) + Le(uint64_t{1} << 61),
       "array elements can't be in"},
      {GgufHeader(3, 0, 1) + GgufKey("a", kArray) + Le<uint32_t>(kString) + Le(uint64_t{1} << 61),
       "strings can't be in"},
      {GgufHeader(3, 0, 1) + GgufKey("a", kArray) + Le<uint32_t>(13) + Le<uint64_t>(0),
       "value type 13"},
      {nested, "nested deeper than 4"},
      {GgufHeader(3, 0, 1) + GgufKey("a", kString) + Le(~uint64_t{0}) + "text", "a string value"},
      {GgufHeader(3, 0, 2) + GgufKey("a", kU8) + "1" + GgufKey("a", kU8) + "1",
       "\"a\" is there twice"},
      {GgufHeader(3, 0, 1) + GgufKey(alignment, kU64) + Le<uint64_t>(32), "expected uint32"},
      {GgufHeader(3, 0, 1) + GgufKey(alignment, kU32) + Le<uint32_t>(0), "alignment is 0"},
      {GgufHeader(3, 0, 1) + GgufKey(alignment, kU32) + Le<uint32_t>(12), "alignment is 12"},
      {OneTensor(GgufTensorInfo(long_name, {1}, 0, 0), 4), "name of 64 bytes"},
      {OneTensor(GgufTensorInfo("t", {1, 1, 1, 1, 1}, 0, 0), 4), "has 5 dimensions"},
      {OneTensor(GgufTensorInfo("t", {~uint64_t{0}}, 0, 0), 4), "dimension 18446744073709551615"},
      {OneTensor(GgufTensorInfo("t", {1}, 4, 0), 4), "no type has the number 4"},
      {OneTensor(GgufTensorInfo("t", {33}, 8, 0), 64), "no multiple of Q8_0's block of 32"},
      {OneTensor(GgufTensorInfo("t", {1u << 31, 1u << 31, 1u << 31}, 0, 0), 4), "over 2^64 bytes"},
      {OneTensor(GgufTensorInfo("t", {2}, 0, 0), 4), "has 8 bytes at offset 0"},
      {OneTensor(GgufTensorInfo("t", {1}, 0, 16), 64), "no multiple of the alignment 32"},
      {OneTensor(GgufTensorInfo("t", {1}, 0, ~uint64_t{31}), 64), "at offset 18446744073709551584"},
      {PaddedTo(
           GgufHeader(3, 2, 0) + GgufTensorInfo("t", {1}, 0, 0) + GgufTensorInfo("t", {1}, 0, 32),
           32) +
           std::string(64, '\0'),
       "\"t\" is there twice"},
      {PaddedTo(
           GgufHeader(3, 2, 0) + GgufTensorInfo("t", {9}, 0, 0) + GgufTensorInfo("u", {1}, 0, 32),
           32) +
           std::string(64, '\0'),
       "overlap at offset 32"},
  };
  for (const Bad& bad : all) {
    const auto file = GgufOf(bad.bytes);
    ASSERT_FALSE(file.ok()) << bad.message;
    EXPECT_NE(Message(file.status()).find(bad.message), std::string::npos) << file.status();
    EXPECT_EQ(Message(file.status()).find(GgufTempPath("scratch.gguf")), 0u) << file.status();
  }
}

TEST(GgufTest, ReadsWhatTheFormatAllows) {
  // Tensors out of order with a hole between, no dimensions, none of one, another alignment.
  const std::string keys = GgufKey("general.alignment", kU32) + Le<uint32_t>(8);
  const std::string bytes =
      PaddedTo(GgufHeader(3, 4, 1) + keys + GgufTensorInfo("b", {2}, 0, 24) +
                   GgufTensorInfo("a", {}, 0, 8) + GgufTensorInfo("none", {0, 3}, 0, 0) +
                   GgufTensorInfo("k", {256}, 12, 32),
               8) +
      std::string(32 + 144, '\3');
  const auto file = GgufOf(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->alignment(), 8u);
  EXPECT_EQ(file->Find("a")->bytes, 4u);
  EXPECT_EQ(file->Find("none")->bytes, 0u);
  EXPECT_EQ(file->Find("k")->Describe(), "Q4_K [256]");
  EXPECT_TRUE(GgufOf(GgufHeader(3, 0, 0)).ok());
}

// Everything before the data is a boundary of something; inside the data, each tensor's end.
TEST(GgufTest, RefusesEveryTruncation) {
  const std::string whole = WrittenFile();
  const size_t needed = whole.size() - 30;  // the padding after the last tensor, q's 34 bytes
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto file = GgufOf(whole.substr(0, size));
    EXPECT_EQ(file.ok(), size >= needed) << size << " of " << whole.size();
  }
}

TEST(GgufTest, SurvivesFlippedBytes) {
  const std::string whole = WrittenFile();
  const Rng rng(5, StreamOf("gguf flips"));
  int num_refused = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    // Mostly one byte, sometimes three.
    for (uint64_t k = 0; k <= (i % 4 == 0 ? 2u : 0u); ++k) {
      bytes[rng.Below(6 * i + 2 * k, bytes.size())] ^=
          static_cast<char>(rng.Below(6 * i + 2 * k + 1, 255) + 1);
    }
    const auto file = GgufOf(bytes);
    num_refused += file.ok() ? 0 : 1;
    if (!file.ok()) continue;
    for (const GgufTensor& tensor : file->tensors()) {
      EXPECT_EQ(file->Data(tensor).size(), tensor.bytes);
    }
    for (const GgufEntry& entry : file->entries()) {
      (void)file->Strings(entry.key);
      (void)file->Integers(entry.key);
      (void)file->Integer(entry.key);
    }
  }
  EXPECT_GT(num_refused, 500);
}

TEST(GgufWriterTest, RefusesWhatTheReaderWould) {
  const auto write = [](auto&& add) {
    auto writer = GgufWriter::Create(GgufTempPath("refused.gguf"));
    EXPECT_TRUE(writer.ok());
    add(writer->get());
    return (*writer)->BeginData();
  };
  const auto is_refused = [&](auto&& add) {
    return write(add).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(is_refused([](GgufWriter* w) { w->AddU32("Upper.case", 1); }));
  EXPECT_TRUE(is_refused([](GgufWriter* w) { w->AddU32("a..b", 1); }));
  EXPECT_TRUE(is_refused([](GgufWriter* w) { w->AddU32("", 1); }));
  EXPECT_TRUE(is_refused([](GgufWriter* w) { w->AddU32(std::string(65536, 'a'), 1); }));
  EXPECT_TRUE(is_refused([](GgufWriter* w) { w->AddString("a", "\xff"); }));
  EXPECT_TRUE(is_refused([](GgufWriter* w) {
    w->AddU32("a", 1);
    w->AddU32("a", 1);
  }));
  EXPECT_TRUE(
      is_refused([](GgufWriter* w) { w->AddTensor(std::string(64, 'n'), {1}, GgmlType::kF32); }));
  EXPECT_TRUE(is_refused([](GgufWriter* w) { w->AddTensor("t", {1, 33}, GgmlType::kQ8_0); }));
  EXPECT_TRUE(is_refused([](GgufWriter* w) {
    w->AddTensor("t", {1, 1, 1, 1, 1}, GgmlType::kF32);
  }));
  EXPECT_TRUE(is_refused([](GgufWriter* w) {
    w->AddTensor("t", {1}, GgmlType::kF32);
    w->AddTensor("t", {1}, GgmlType::kF32);
  }));
  EXPECT_TRUE(write([](GgufWriter* w) { w->AddU32("a_1.b", 1); }).ok());
}

TEST(GgufWriterTest, PublishesNothingUnlessTheDataIsWhole) {
  const std::string path = GgufTempPath("partial.gguf");
  (void)RemoveAll(path);
  for (const char* data : {"1234567", "123456789"}) {
    auto writer = GgufWriter::Create(path);
    ASSERT_TRUE(writer.ok());
    (*writer)->AddTensor("t", {2}, GgmlType::kF32);
    ASSERT_TRUE((*writer)->BeginData().ok());
    (void)(*writer)->Append(data);
    EXPECT_EQ((*writer)->Commit().code(), StatusCode::kInvalidArgument) << data;
  }
  EXPECT_FALSE(Exists(path));
}

}  // namespace
}  // namespace cria::model

#include "model/io/torch_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/str.h"
#include "tests/unit/model/io/torch_builder.h"

namespace cria::model {
namespace {

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// A file in memory: there are thousands, and a disk takes milliseconds for each.
int MemoryFile() {
  static const int fd = memfd_create("model.pth", 0);
  return fd;
}

std::string Path() { return StrCat("/proc/self/fd/", MemoryFile()); }

StatusOr<TorchFile> Open(const std::string& bytes) {
  const auto size = static_cast<ssize_t>(bytes.size());
  EXPECT_EQ(ftruncate(MemoryFile(), size), 0);
  EXPECT_EQ(pwrite(MemoryFile(), bytes.data(), bytes.size(), 0), size);
  return TorchFile::Open(Path());
}

std::vector<float> Row(const StridedTensor& tensor, int64_t row) {
  std::vector<float> values(static_cast<size_t>(tensor.columns()));
  CopyRow(tensor, row, reinterpret_cast<char*>(values.data()));
  return values;
}

TorchBuilder Sample() {
  TorchBuilder builder;
  const std::string storage = Floats({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  builder.Add("whole", StDtype::kF32, {3, 4}, {4, 1}, storage);
  builder.Add("columns", StDtype::kF32, {3, 2}, {4, 1}, storage, 2);  // of a chunk along columns
  builder.Add("turned", StDtype::kF32, {4, 3}, {1, 4}, storage);
  builder.Add("vector", StDtype::kF32, {2}, {1}, storage, 10);
  builder.Add("half", StDtype::kBF16, {1, 2}, {2, 1}, "abcd");
  return builder;
}

TEST(TorchFileTest, ReadsTensorsAndViews) {
  for (const bool zip64 : {false, true}) {
    const auto file = Open(Sample().Build(zip64));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(file->tensors().size(), 5u);
    const auto& t = file->tensors();
    EXPECT_EQ(t[0].name, "whole");
    EXPECT_EQ(Row(t[0], 2), (std::vector<float>{8, 9, 10, 11}));
    EXPECT_EQ(Row(t[1], 0), (std::vector<float>{2, 3}));
    EXPECT_EQ(Row(t[1], 2), (std::vector<float>{10, 11}));
    EXPECT_EQ(Row(t[2], 1), (std::vector<float>{1, 5, 9}));
    EXPECT_EQ(Row(t[3], 0), std::vector<float>{10});
    EXPECT_EQ(Row(t[3], 1), std::vector<float>{11});
    EXPECT_EQ(t[4].dtype, StDtype::kBF16);
    EXPECT_EQ(t[4].data, "abcd");
  }
}

void ExpectError(const Status& status, const std::vector<std::string>& said) {
  ASSERT_FALSE(status.ok());
  for (const std::string& part : said) {
    EXPECT_NE(Message(status).find(part), std::string::npos) << "no " << part << " in: " << status;
  }
}

// A checkpoint is a program for Python; what this one asks for is not run but named.
TEST(TorchFileTest, AGlobalThatIsNoTensorsIsRefusedByName) {
  TorchBuilder builder;
  builder.AddRaw("evil",
                 PickleGlobal("os", "system") + PickleTuple({PickleText("rm -rf /")}) + "R");
  ExpectError(Open(builder.Build()).status(), {Path(), "os.system"});
}

TEST(TorchFileTest, ViewsBeyondTheirStorageAreRefused) {
  struct View {
    std::vector<int64_t> shape, strides;
    int64_t offset;
  };
  const View views[] = {
      {{3, 4}, {4, 1}, 1},
      {{4, 4}, {4, 1}, 0},
      {{2, 2}, {int64_t{1} << 62, 1}, 0},
      {{int64_t{1} << 40, 2}, {0, 0}, 0},
      {{1, 1}, {1, 1}, -1},
      {{2, 2}, {-1, 1}, 5},
      {{2}, {int64_t{1} << 62}, int64_t{1} << 62},
  };
  for (const View& view : views) {
    TorchBuilder builder;
    builder.Add("w", StDtype::kF32, view.shape, view.strides, std::string(48, 'x'), view.offset);
    ExpectError(Open(builder.Build()).status(), {Path(), ": w"});
  }
}

TEST(TorchFileTest, WhatIsNoDictOfTensorsIsRefused) {
  TorchBuilder text;
  text.AddRaw("w", PickleText("hello"));
  ExpectError(Open(text.Build()).status(), {"w", "not a plain tensor"});
  TorchBuilder twice;
  twice.Add("w", StDtype::kF32, {1}, {1}, "xxxx");
  twice.Add("w", StDtype::kF32, {1}, {1}, "xxxx");
  ExpectError(Open(twice.Build()).status(), {"w", "twice"});
  ExpectError(Open(BuildZip({{"a/data.pkl", std::string("\x80\x02", 2) + "]."}})).status(),
              {"no dict"});
  ExpectError(Open(BuildZip({{"a/readme", "x"}})).status(), {"data.pkl"});
  ExpectError(Open("\x80\x02}.").status(), {Path(), "no zip file"});
  ExpectError(
      Open(BuildZip({{"a/data.pkl", std::string("\x80\x02", 2) + "}."}, {"a/byteorder", "big"}}))
          .status(),
      {"byte order"});
  EXPECT_EQ(TorchFile::Open("/nowhere.pth").status().code(), StatusCode::kNotFound);
}

TEST(TorchFileTest, EveryTruncationIsAnError) {
  const std::string whole = Sample().Build();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(Open(whole.substr(0, size)).ok()) << size;
  }
}

TEST(TorchFileTest, EveryFlippedByteIsAnErrorOrAReading) {
  for (const bool zip64 : {false, true}) {
    const std::string whole = Sample().Build(zip64);
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string bytes = whole;
        bytes[i] = static_cast<char>(bytes[i] ^ flip);
        const auto file = Open(bytes);
        if (!file.ok()) continue;
        for (const StridedTensor& tensor : file->tensors()) {
          std::string row(static_cast<size_t>(tensor.columns() * StDtypeBits(tensor.dtype) / 8),
                          '\0');
          for (int64_t r = 0; r < tensor.rows(); ++r) CopyRow(tensor, r, row.data());
        }
      }
    }
  }
}

}  // namespace
}  // namespace cria::model

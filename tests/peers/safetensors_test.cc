// The reference implementation of safetensors on our files: it reads them, and writes the same
// bytes.

#include "model/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "tests/peers/peer_python.h"

namespace cria::model {
namespace {

std::string TempFolder(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = JoinPath(folder != nullptr ? folder : "/tmp", name);
  (void)RemoveAll(path);
  (void)MakeDirs(path);
  return path;
}

std::string FileWith(const std::string& header, size_t data_bytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return bytes + header + std::string(data_bytes, '\0');
}

TEST(SafetensorsPeerTest, WritesTheSameBytesAsTheReferenceAndRefusesWhatItRefuses) {
  const std::string folder = TempFolder("peer");
  const std::string data(64, '\x3f');
  // Every dtype that numpy has.
  const std::vector<StDtype> dtypes = {StDtype::kU8,  StDtype::kI8,  StDtype::kI16, StDtype::kU16,
                                       StDtype::kF16, StDtype::kI32, StDtype::kU32, StDtype::kF32,
                                       StDtype::kF64, StDtype::kI64, StDtype::kU64};
  std::vector<TensorToWrite> tensors = {
      {"scalar", StDtype::kF32, {}, std::string_view(data).substr(0, 4)},
      {"none", StDtype::kF32, {3, 0}, {}},
      {"a \"quoted\"\n\t\x01 \xc3\xa9\xe2\x82\xac\x7f name",
       StDtype::kI64,
       {1},
       std::string_view(data).substr(0, 8)},
  };
  for (const StDtype dtype : dtypes) {
    for (const char* prefix : {"x", "b"}) {
      tensors.push_back(
          {StrCat(prefix, ".", StDtypeName(dtype)),
           dtype,
           {2, 3},
           std::string_view(data).substr(0, static_cast<size_t>(6 * StDtypeBits(dtype) / 8))});
    }
  }
  const std::string ours = JoinPath(folder, "ours.safetensors");
  ASSERT_TRUE(WriteSafetensors(ours, tensors, {{"format", "pt \xc3\xa9"}}).ok());
  const std::vector<std::string> bad = {
      FileWith(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2),
      FileWith(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2),
      FileWith(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1),
      FileWith(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      FileWith(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2),
      FileWith(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-0,1]}})", 1),
      FileWith(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
      FileWith(R"({"__metadata__":{"a":1}})", 0),
      FileWith(std::string("{}\0x", 4), 0),
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    const std::string path = StrCat(folder, "/bad_", i, ".safetensors");
    ASSERT_TRUE(WriteFileAtomic(path, bad[i]).ok());
    EXPECT_FALSE(SafetensorsFile::Open(path).ok()) << i;
  }
  const auto out = RunPeer("tests/peers/safetensors_peer.py", {folder});
  if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, "") << "the reference accepts these";
  EXPECT_EQ(*HashFileHex(ours), *HashFileHex(JoinPath(folder, "theirs.safetensors")));
}

}  // namespace
}  // namespace cria::model

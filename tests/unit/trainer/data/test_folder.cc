#include "tests/unit/trainer/data/test_folder.h"

#include <cstdlib>

#include "base/check.h"
#include "base/file.h"
#include "base/rng.h"
#include "trainer/data/shard.h"

namespace cria::trainer {
namespace {

SplitInfo WriteSplit(const std::string& dir, const char* name,
                     const std::vector<std::vector<int32_t>>& documents, TokenType type,
                     int64_t tokens_per_shard) {
  ShardWriter writer(dir, name, type, tokens_per_shard);
  for (const std::vector<int32_t>& document : documents) {
    std::vector<int32_t> ids = {0};
    ids.insert(ids.end(), document.begin(), document.end());
    ids.push_back(1);
    CRIA_CHECK(writer.Append(ids).ok());
  }
  SplitInfo split;
  split.num_tokens = writer.num_tokens();
  split.num_documents = static_cast<int64_t>(documents.size());
  split.num_bytes = split.num_tokens;
  split.shards = writer.Finish().value();
  return split;
}

}  // namespace

std::string MakeTestFolder(const std::string& name) {
  const char* const root = std::getenv("TEST_TMPDIR");
  const std::string dir = JoinPath(root == nullptr ? "/tmp" : root, "data_test_" + name);
  CRIA_CHECK(RemoveAll(dir).ok());
  CRIA_CHECK(MakeDirs(dir).ok());
  return dir;
}

Manifest WriteTestData(const std::string& dir, const std::vector<std::vector<int32_t>>& train,
                       const std::vector<std::vector<int32_t>>& val, int64_t vocab_size,
                       int64_t tokens_per_shard) {
  Manifest manifest;
  manifest.source = "test";
  manifest.options_hash = "none";
  manifest.tokenizer_file = "tokenizer.json";
  manifest.tokenizer_fingerprint = "none";
  manifest.vocab_size = vocab_size;
  manifest.bos_id = 0;
  manifest.eos_id = 1;
  manifest.token_type = TokenTypeFor(vocab_size);
  manifest.train = WriteSplit(dir, "train", train, manifest.token_type, tokens_per_shard);
  manifest.val = WriteSplit(dir, "val", val, manifest.token_type, tokens_per_shard);
  const Status status = WriteManifest(dir, manifest);
  CRIA_CHECK(status.ok(), Message(status));
  return manifest;
}

std::vector<std::vector<int32_t>> MakeDocuments(int64_t count, int64_t length_max, uint64_t seed,
                                                int64_t vocab_size) {
  const Rng rng(seed, StreamOf("test documents"));
  std::vector<std::vector<int32_t>> documents(static_cast<size_t>(count));
  uint64_t draw = 0;
  for (std::vector<int32_t>& document : documents) {
    document.resize(rng.Below(draw++, static_cast<uint64_t>(length_max) + 1));
    for (int32_t& id : document) {
      id = 2 + static_cast<int32_t>(rng.Below(draw++, static_cast<uint64_t>(vocab_size - 2)));
    }
  }
  return documents;
}

}  // namespace cria::trainer

// Folders and data sets for the tests of trainer/data.

#ifndef CRIA_TESTS_UNIT_TRAINER_DATA_TEST_FOLDER_H_
#define CRIA_TESTS_UNIT_TRAINER_DATA_TEST_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/manifest.h"

namespace cria::trainer {

// A new, empty folder under TEST_TMPDIR.
std::string MakeTestFolder(const std::string& name);

// A prepared folder without a tokenizer.json: BOS is id 0, EOS id 1, the documents' ids as given,
// without BOS and EOS. Returns what was written as the manifest.
Manifest WriteTestData(const std::string& dir, const std::vector<std::vector<int32_t>>& train,
                       const std::vector<std::vector<int32_t>>& val, int64_t vocab_size = 1000,
                       int64_t tokens_per_shard = 1000);

// `count` documents of lengths 0 .. length_max that differ, with ids in [2, vocab_size).
std::vector<std::vector<int32_t>> MakeDocuments(int64_t count, int64_t length_max, uint64_t seed,
                                                int64_t vocab_size = 1000);

}  // namespace cria::trainer

#endif  // CRIA_TESTS_UNIT_TRAINER_DATA_TEST_FOLDER_H_

// Proof that an epoch shows every token exactly once, however many ranks read it.
//
// Called by `cria data audit` and by tests.
//
//   CRIA_ASSIGN_OR_RETURN(const AuditReport report,
//                         AuditEpoch(dataset, {.seq = 256, .world_size = 3, .global_batch = 16}));
//   if (!report.ok) Say(report.problem);
//
// Walks the steps of one epoch as `world_size` ranks would, each reading its share of each global
// batch, and marks each token's index in a bitmap. Three things must agree:
//   - every index is marked once: none twice, none left out;
//   - the ids that came out, counted by id, are those that lie in the shards;
//   - the targets that count are the tokens less one a document (its last has no next).
// Thread-safe. Cost: one epoch of Read, one bit of memory a token.

#ifndef CRIA_TRAINER_DATA_AUDIT_H_
#define CRIA_TRAINER_DATA_AUDIT_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "trainer/data/token_dataset.h"

namespace cria::trainer {

struct AuditOptions {
  int64_t seq = 256;
  int64_t world_size = 1;
  int64_t global_batch = 8;  // samples a step, over all ranks
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool shuffle = true;
};

struct AuditReport {
  bool ok = false;
  std::string problem;  // the first thing found wrong, empty when ok
  int64_t num_steps = 0;
  int64_t num_samples = 0;
  int64_t num_tokens = 0;    // in the split
  int64_t num_seen = 0;      // tokens that came out, repetitions counted
  int64_t num_repeated = 0;  // indices seen more than once
  int64_t num_missing = 0;   // indices never seen
  int64_t num_valid = 0;     // targets that count
  int64_t num_padding = 0;   // places of the last window without a token
  int64_t num_documents = 0;
  int64_t rank_samples_min = 0;  // the least and the most that a rank read
  int64_t rank_samples_max = 0;
};

// InvalidArgument for options that are out of range or an empty split. What the audit finds wrong
// is in the report.
StatusOr<AuditReport> AuditEpoch(const TokenDataset& dataset, const AuditOptions& options);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_AUDIT_H_

// What each rank of a layout saw and holds, step by step, and whether it fits together: every
// sequence of the global batch read once, and the same bits wherever two ranks hold the same
// numbers.
//
//   LayoutEvidence evidence;                          // a StepWatcher (loop/step_watcher.h)
//   ... a run with it on each rank ...
//   CRIA_ASSIGN_OR_RETURN(const auto all, GatherEvidence(evidence.steps(), world));
//   std::string problem = JudgeTokens(layout, all, one_rank);    // empty: exact
//   problem = JudgeReplicas(config, all);                        // empty: bit-equal
//
// Tokens. Each rank sums a 64-bit hash of (token, target, position, start of the document) over its
// rows that have a target: the sum is one of the multiset, whatever the order. For each tp and pp
// place the sums over cp and dp must be that of the run on one rank, so must the number of rows;
// and the sequences that the dp ranks say they read must be the batch cut in pieces. Weights. Each
// rank hashes the bytes of each tensor, or of the part of it that it keeps; parts with the same
// place in the same tensor must have the same hash on every rank. Thread-compatible.

#ifndef CRIA_TRAINER_CHECK_LAYOUTS_EVIDENCE_H_
#define CRIA_TRAINER_CHECK_LAYOUTS_EVIDENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/llama/config.h"
#include "model/llama/token_batch.h"
#include "model/parallel/mesh.h"
#include "model/parallel/parameter_buffers.h"
#include "trainer/loop/rank_batches.h"
#include "trainer/loop/step_watcher.h"

namespace cria::trainer {

// A part of a tensor in a rank's memory.
struct HeldPart {
  int64_t parameter = 0;  // index in the whole model's order
  int64_t first_row = 0, rows = 0, first_column = 0, columns = 0;  // of the logical tensor
  int64_t begin = 0, end = 0;  // elements of that rectangle, row by row
  uint64_t bits = 0;           // hash of the values' bytes
};

struct StepEvidence {
  int64_t first_sample = 0, num_samples = 0;
  int64_t num_rows = 0;  // with a target
  uint64_t rows_hash = 0;
  std::vector<HeldPart> parts;
};

// Adds the rows of a micro-batch.
void AddRows(const model::TokenBatch& batch, StepEvidence* evidence);
// What the rank keeps in fp32 between steps, parameter by parameter.
std::vector<HeldPart> HashParameters(const model::ParameterBuffers& parameters);

class LayoutEvidence final : public StepWatcher {
 public:
  void OnBatches(int64_t step, const RankBatches& batches) override;
  void OnUpdated(int64_t step, const model::ParameterBuffers& parameters) override;

  const std::vector<StepEvidence>& steps() const { return steps_; }

 private:
  std::vector<StepEvidence> steps_;
};

// By rank and step, on all ranks.
StatusOr<std::vector<std::vector<StepEvidence>>> GatherEvidence(
    const std::vector<StepEvidence>& mine, comm::Communicator* world);

// The first thing that is wrong, with the step and the ranks; empty when nothing is.
std::string JudgeTokens(const model::Layout& layout,
                        const std::vector<std::vector<StepEvidence>>& by_rank,
                        const std::vector<StepEvidence>& one_rank);
std::string JudgeReplicas(const model::LlamaConfig& config,
                          const std::vector<std::vector<StepEvidence>>& by_rank);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECK_LAYOUTS_EVIDENCE_H_

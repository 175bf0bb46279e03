// Runs a step's micro-batches through a rank's stage, in the pipeline's order, and moves
// activations and gradients between stages meanwhile.
//
//   Pipeline pipeline(&stage, &groups);
//   LossSum loss;
//   CRIA_RETURN_IF_ERROR(pipeline.Train(micro_batches, 1.0f / num_valid, &loss));
//
// All ranks of a pipeline are given the same number of micro-batches with the same rows. One rank
// without neighbours takes forward and backward of each in turn. Receives are posted as soon as
// their memory is free, sends as soon as there is something to send: both run while the stage
// computes. Single-threaded. Errors: the communicators'; the step is lost then.

#ifndef CRIA_MODEL_PARALLEL_PIPELINE_H_
#define CRIA_MODEL_PARALLEL_PIPELINE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/llama/stage.h"
#include "model/llama/token_batch.h"
#include "model/parallel/groups.h"
#include "model/parallel/pipeline_schedule.h"

namespace cria::model {

PipelineShape ShapeOf(const Layout& layout);

// Micro-batches that a rank's chunks hold at once, at most, in steps of `micro_batches`: what
// StageOptions::slots must be, or more.
int SlotsOf(const Layout& layout, int rank, int micro_batches);

class Pipeline {
 public:
  // `groups` null: one rank.
  Pipeline(Stage* stage, const Groups* groups);

  // Forward and backward of all. *loss gets this rank's part: only last stages have any.
  Status Train(std::span<const TokenBatch> micro_batches, float grad_scale, LossSum* loss);
  // Forward alone.
  Status Evaluate(std::span<const TokenBatch> micro_batches, LossSum* loss);

 private:
  struct Slot {
    bool busy = false;        // holds a micro-batch whose backward pass is to come
    comm::Work input_recv;    // into the chunk's input
    comm::Work forward_send;  // of the boundary
    comm::Work gradient_recv;
    comm::Work gradient_send;
    bool input_posted = false;
    size_t input_for = 0;  // index of the action that it is posted for
    bool gradient_posted = false;
    size_t gradient_for = 0;
  };

  bool HasInput(int chunk) const;   // from another stage
  bool HasOutput(int chunk) const;  // for another stage
  Slot& At(const PipelineAction& action) { return slots_[static_cast<size_t>(action.slot)]; }
  // Posts the next receives on either link, from the action `next` on, whose memory is free.
  void PostReceives(std::span<const PipelineAction> actions, size_t next);
  // Gives the slot to the action; a first chunk has nothing to receive.
  void PostInput(const PipelineAction& action, size_t index);
  void PostGradient(const PipelineAction& action, size_t index);
  // Waits, and posts receives meanwhile, from action `index` on.
  Status Await(const comm::Work& work, std::span<const PipelineAction> actions, size_t index);
  Status Forward(std::span<const PipelineAction> actions, size_t index, bool train, LossSum* loss);
  Status Backward(std::span<const PipelineAction> actions, size_t index);
  Status Run(std::span<const PipelineAction> actions, bool train, LossSum* loss);
  Status WaitForSends();

  Stage* const stage_;
  const Groups* const groups_;
  std::vector<Slot> slots_;
  std::span<const TokenBatch> batches_;
  float grad_scale_ = 1;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_PIPELINE_H_

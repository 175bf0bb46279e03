// The communicators of one rank's place in the mesh.
//
//   CRIA_ASSIGN_OR_RETURN(Groups groups, MakeGroups(layout, config, world.get()));
//   groups.tp->AllReduce({...});
//
// A group of one rank is null: whoever holds it skips the operation. Each group runs its operations
// in order on its own thread when asynchronous, so that gradients, weights and both directions of
// the pipeline don't wait for each other.

#ifndef CRIA_MODEL_PARALLEL_GROUPS_H_
#define CRIA_MODEL_PARALLEL_GROUPS_H_

#include <memory>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/llama/config.h"
#include "model/parallel/mesh.h"

namespace cria::model {

struct Groups {
  Layout layout = {};
  Coordinates at = {};
  comm::Communicator* world = nullptr;  // not owned

  using Group = std::unique_ptr<comm::Communicator>;
  Group tp;        // ranks that split each layer
  Group cp;        // ranks that split each sequence
  Group operands;  // tp x cp: ranks that hold parts of the same activations
  Group replicas;  // cp x dp: ranks that hold the same weights; gradients are summed over it
  Group weights;   // the same ranks, for gathering weights meanwhile
  Group stage;     // tp x cp x dp: ranks that hold the same norms
  Group kv;        // tp ranks that hold the same kv heads
  Group tied;      // the first and the last stage, where embedding and head are one matrix
  // The neighbours in the pipeline, always in the order {sender, receiver}. The ring's link, from
  // the last stage to the first, is there with pp_chunks > 1 only.
  Group forward_in, forward_out;
  Group backward_in, backward_out;  // the same for gradients
};

// No communication; every rank of the world calls it. InvalidArgument where the world's size is not
// the layout's.
StatusOr<Groups> MakeGroups(const Layout& layout, const LlamaConfig& config,
                            comm::Communicator* world);

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_GROUPS_H_

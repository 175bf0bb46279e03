// Placement: what a rank's memory says of a tensor that is divided over the ranks of tensor
// parallelism. There each rank computes with its own part and a mix-up is silent: shapes fit.
//
//   kReplicate   all ranks have the same numbers
//   kShard0      each rank has its own rows
//   kShard1      each rank has its own columns
//   kPartial     the tensor is the sum over the ranks
//
//   CheckPlacement("gather", "x", x.placement(), {Placement::kShard0});
//     aborts with "gather: x is partial, needs shard(0)"
//
// Each tensor has one (model/tensor.h): set where memory gets its role, passed on by views. Rules
// of the operations: model/parallel/placement_ops.h. Thread-safe.

#ifndef CRIA_MODEL_PLACEMENT_H_
#define CRIA_MODEL_PLACEMENT_H_

#include <cstdint>
#include <initializer_list>

namespace cria::model {

enum class Placement : uint8_t { kReplicate, kShard0, kShard1, kPartial };

// "replicate", "shard(0)", "shard(1)", "partial".
const char* PlacementName(Placement placement);

// Aborts when `is` is none of `allowed`. `op` and `role` name the operation and its tensor.
void CheckPlacement(const char* op, const char* role, Placement is,
                    std::initializer_list<Placement> allowed);
// The same, where another tensor of the operation has the placement that is needed.
void CheckSamePlacement(const char* op, const char* role, Placement is, const char* other_role,
                        Placement other);

}  // namespace cria::model

#endif  // CRIA_MODEL_PLACEMENT_H_

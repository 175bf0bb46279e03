// The number that tells groups apart, worked out by each rank alone: no communication.
//
//   const uint64_t id = GroupId({.parent = 0, .name = "tp", .world_ranks = ranks, .instance = 0});
//
// Ranks that pass the same parent, name, list and instance get the same number; a rank that passes
// something else gets another one, which is how the first operation notices. Thread-safe.

#ifndef CRIA_COMM_ENGINE_GROUP_ID_H_
#define CRIA_COMM_ENGINE_GROUP_ID_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace cria::comm {

struct GroupKey {
  uint64_t parent = 0;  // the id of the group it is made from; 0 for the world
  std::string_view name = {};
  std::span<const int> world_ranks = {};
  uint64_t instance = 0;  // how many groups of this parent had this name and list before
};

uint64_t GroupId(const GroupKey& key);

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_GROUP_ID_H_

// The groups of a training job, by arithmetic on its mesh: what each rank works out from the world
// size alone, without a message.
//
//   const Mesh mesh = MeshOf(8192);                      // TP 8, CP 2, PP 16, DP 32
//   GroupsOf(mesh, /*rank=*/13, /*count=*/8)             // tp, cp, pp, dp, world, dp_cp, ...
//
// Axes as DESIGN.md orders them, innermost first: TP, CP, PP, DP. A group is the ranks that differ
// in some axes only; a job uses single axes and products of them. Thread-safe: values.
// Cost: the members of each group are written out: O(sum of the groups' sizes).

#ifndef CRIA_COMM_BENCH_INIT_MESH_GROUPS_H_
#define CRIA_COMM_BENCH_INIT_MESH_GROUPS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace cria::comm {

inline constexpr int kNumMeshAxes = 4;
// The non-empty sets of axes.
inline constexpr int kMeshGroupsMax = 15;

struct Mesh {
  std::array<int, kNumMeshAxes> size = {1, 1, 1, 1};  // TP, CP, PP, DP
};

// A mesh of this many ranks with the usual sizes, as far as they divide: TP up to 8, CP up to 2, PP
// up to 16, DP the rest.
Mesh MeshOf(int num_ranks);

// "TP 8, CP 2, PP 16, DP 32".
std::string Describe(const Mesh& mesh);

struct MeshGroup {
  const char* name = "";
  std::vector<int> members;  // world ranks, ascending
  int position = 0;          // of this rank among them
  uint64_t id = 0;           // as Communicator::NewGroup makes it (engine/group_id.h)
};

// The first `count` groups that this rank belongs to, count <= kMeshGroupsMax.
std::vector<MeshGroup> GroupsOf(const Mesh& mesh, int rank, int count);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_MESH_GROUPS_H_
